"""What tests of members do with a cluster in memory, and what they read of its members."""

from cluster.archive.recording_log import RecordingLog
from cluster.member.disk.repair import RepairNote
from cluster.protocol import decode, streams
from cluster.protocol.enums import ClusterControlToggle
from cluster.protocol.frame import HEADER_LENGTH, align, frame
from tests.member.in_memory.cluster import QUICK, SECOND, SimulatedCluster
from tests.member.in_memory.member import log_bytes


class AllowAll:
    """An authorisation service that permits every request."""

    def is_authorised(self, schema_id, action_id, request_type, encoded_principal):
        return True


SEGMENT = 64 * 1024  # bytes of a segment file


def a_cluster(members=3, seed=1, **settings):
    cluster = SimulatedCluster(members, seed, **settings)
    cluster.await_leader(timeout_ns=90 * SECOND)
    cluster.await_level()
    return cluster


def entries(member):
    """The committed log of a member, decoded, padding left out."""
    data = log_bytes(member, 0, member.commit_position)
    found, offset = [], 0
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + 4], "little")
        if data[offset + 6]:
            found.append(decode(data, offset + HEADER_LENGTH, length - HEADER_LENGTH))
        offset += align(length)
    return found


def a_busy_cluster(members=3, seed=1, messages=40, **settings):
    cluster = SimulatedCluster(members, seed, **settings)
    cluster.await_leader()
    cluster.add_client()
    send(cluster, messages)
    return cluster


def send(cluster, messages):
    client = cluster.clients[0]
    for _ in range(messages):
        client.send(b"0:%d:" % len(client.sent) + bytes(200))
    cluster.await_settled()
    cluster.await_level()


def toggle(cluster, value=ClusterControlToggle.SNAPSHOT):
    cluster.leader.counters.control_toggle.set(value)


def take_snapshot(cluster):
    """Have one taken by all running members; returns its position."""
    count = cluster.leader.counters.snapshot_count.get()
    toggle(cluster)

    def every_member_has_taken_it():
        return all(
            not member.is_running or member.counters.snapshot_count.get() > count
            for member in cluster.members
        )

    cluster.run_until(every_member_has_taken_it)
    return cluster.leader.recording_log.latest_snapshot().log_position


def entries_of(member):
    """(service, position) of the valid snapshot entries, as a tool reads them."""
    log = RecordingLog.open("member/cluster", files=member.files, write=False)
    return [
        (entry.service_id, entry.log_position)
        for entry in log.entries
        if entry.is_valid and entry.service_id >= -1 and entry.entry_type.name == "SNAPSHOT"
    ]


def content_of(member, service_id):
    """Bytes of the newest snapshot of a service, or of the module (-1)."""
    entry = member.recording_log.latest_snapshot(service_id)
    recording = member.archive.recording(entry.recording_id)
    return recording.read(0, recording.append_position).tobytes()


def note_of(member):
    return RepairNote(member.files, "member/cluster")


def stop_all(cluster, *, last):
    """In order; the last one to go has all that any of them has."""
    for member in cluster.members:
        if member is not last and member.is_running:
            member.stop()
    last.stop()


def check_equal(cluster):
    cluster.await_level()
    ends = {member.append_position for member in cluster.members}
    assert len(ends) == 1
    [end] = ends
    assert len({log_bytes(member, 0, end) for member in cluster.members}) == 1
    cluster.check_promises()
    for member in cluster.members:
        assert not note_of(member).is_there
        assert not member.files.is_directory("member/archive/damaged") or (
            member.files.list_directory("member/archive/damaged") == []
        )


def wiped(member):
    """Kill a member and start it again with an empty disk."""
    member.kill()
    member.wipe()
    member.start()


def lose_segment(member, number):
    """Delete a segment file of a stopped member's log."""
    member.files.unlink(f"member/archive/0-{number * SEGMENT}.rec")


def a_cluster_with_a_client(seed=1, members=3):
    """Members that are level, and one client with a session."""
    cluster = SimulatedCluster(members, seed)
    cluster.await_leader()
    client = cluster.add_client()
    cluster.await_settled()
    cluster.await_level()
    return cluster, client


def a_cluster_with_an_entry(members=3, seed=1):
    """Quick members that are level, and one client, whose first message they have committed."""
    cluster = SimulatedCluster(members, seed, **QUICK)
    cluster.await_leader()
    client = cluster.add_client()
    client.send(b"0:first")
    cluster.await_settled()
    cluster.await_level()
    return cluster, client


def heard(client):
    """Everything that the client gets from now on, decoded."""
    messages = []
    original = client._on_frames

    def on_frames(frames):
        offset = 0
        while offset < len(frames):
            length = int.from_bytes(frames[offset : offset + 4], "little")
            messages.append(decode(frames, offset + HEADER_LENGTH, length - HEADER_LENGTH))
            offset += align(length)
        original(frames)

    client._on_frames = on_frames
    return messages


def asks(client, message):
    client._connection.send(frame(message.encode(), session_id=0, stream_id=streams.INGRESS))


def set_away(member, is_away=True):
    """As RemoteService does for its process."""
    member.agent.parts.services._channels[0].is_away = is_away
