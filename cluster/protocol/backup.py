"""Backup, standby and the retired membership messages: templates 70-74 and 77-81."""

from typing import Annotated

from cluster.protocol.sbe import Ascii, Blob, Composite, Message, Time, Version, i32, i64, since


class BackupSnapshotRecording(Composite):
    """One recording of a snapshot: of a service, or (service id -1) of the consensus module."""

    recording_id: i64
    leadership_term_id: i64
    term_base_log_position: i64
    log_position: i64
    timestamp: Time
    service_id: i32


class StandbySnapshotRecording(Composite):
    """The same on a standby, with the archive that holds it."""

    recording_id: i64
    leadership_term_id: i64
    term_base_log_position: i64
    log_position: i64
    timestamp: Time
    service_id: i32
    archive_endpoint: Ascii = ""


class AddPassiveMember(Message, template_id=70):
    """Historic, as all of 70-74."""

    correlation_id: i64
    member_endpoints: Ascii = ""


class ClusterMembersChange(Message, template_id=71):
    correlation_id: i64
    leader_member_id: i32
    active_members: Ascii = ""
    passive_members: Ascii = ""


class SnapshotRecordingQuery(Message, template_id=72):
    correlation_id: i64
    request_member_id: i32


class SnapshotRecordings(Message, template_id=73):
    correlation_id: i64
    snapshots: tuple[BackupSnapshotRecording, ...] = ()
    member_endpoints: Ascii = ""


class JoinCluster(Message, template_id=74):
    leadership_term_id: i64
    member_id: i32


class BackupQuery(Message, template_id=77):
    """Asks for the snapshots at or before ``log_position``; None or 2**63 - 1 for the latest."""

    correlation_id: i64
    response_stream_id: i32
    version: Annotated[Version, since(2)] = 0
    log_position: Annotated[i64 | None, since(16)] = None
    response_channel: Ascii = ""
    encoded_credentials: Blob = b""


class BackupResponse(Message, template_id=78):
    """``log_*`` and ``last_*`` come from the same, last, term entry of the leader's recording log."""

    correlation_id: i64
    log_recording_id: i64
    log_leadership_term_id: i64
    log_term_base_log_position: i64
    last_leadership_term_id: i64
    last_term_base_log_position: i64
    commit_position_counter_id: i32
    leader_member_id: i32
    member_id: Annotated[i32 | None, since(10)] = None
    snapshots: tuple[BackupSnapshotRecording, ...] = ()
    cluster_members: Ascii = ""


class HeartbeatRequest(Message, template_id=79):
    correlation_id: i64
    response_stream_id: i32
    response_channel: Ascii = ""
    encoded_credentials: Blob = b""


class HeartbeatResponse(Message, template_id=80):
    correlation_id: i64


class StandbySnapshot(Message, template_id=81):
    """Since schema version 11; major(version) must be 0."""

    correlation_id: i64
    version: i32
    response_stream_id: i32
    snapshots: tuple[StandbySnapshotRecording, ...] = ()
    response_channel: Ascii = ""
    encoded_credentials: Blob = b""
