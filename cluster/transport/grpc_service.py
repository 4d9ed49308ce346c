"""What is served over gRPC: method names, message limits, and the small messages beside raw frames.

    /cluster.Cluster/Session   stream of bytes <-> stream of bytes   whole frames, as over ipc:
    /cluster.Cluster/ReadLog   LogRequest -> stream of frames        LogStatus, committed log, EndOfStream
                             RecordingRequest -> stream of frames  RecordingStatus, a snapshot, EndOfStream
                             EventsRequest -> stream of frames     EventLines, EndOfStream
    /cluster.Cluster/Status    StatusRequest -> LogStatus            how the member stands
    /cluster.Cluster/Control   ControlRequest -> ControlOutcome      what an administrator asks for
    /cluster.Frames/…          the same in messages for clients in any language (cluster.proto)
    /grpc.health.v1.Health, /grpc.reflection.v1alpha.ServerReflection

Requests and responses are bytes that gRPC passes on as they are: frames, or one SBE message of our own
schema (cluster/protocol/link.py), so that nothing is encoded twice.
"""

CREDENTIALS_KEY = "cluster-credentials-bin"  # of a reader, in the metadata of its call
SERVICE = "cluster.Cluster"
SESSION_METHOD = f"/{SERVICE}/Session"
READ_LOG_METHOD = f"/{SERVICE}/ReadLog"
STATUS_METHOD = f"/{SERVICE}/Status"
CONTROL_METHOD = f"/{SERVICE}/Control"

MESSAGE_BYTES_MAX = 1024 * 1024  # of what is waiting, this much goes out in one message
RECEIVE_BYTES_MAX = 17 * 1024 * 1024  # a frame of Aeron's longest message

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", RECEIVE_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own for each session
    ("grpc.enable_retries", 0),  # the client itself resumes its session
    # A process that is stopped, or a network that is silent, ends no connection by itself.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)
