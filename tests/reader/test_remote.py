"""Reading over endpoints: the real members' directories served over each medium, and members that fail."""

import gzip
import itertools
import json
import socket
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster.errors import ConfigurationError, DataLoss, LogDamaged, TimedOut
from cluster.log.entry_filter import EntryFilter
from cluster.protocol.enums import Role
from cluster.reader import LogReader
from cluster.reader.remote import RemoteLog
from cluster.reader.served_member import ServedMember
from cluster.transport.endpoint import Endpoint, Medium
from cluster.transport.frame_splitter import FrameSplitter
from cluster.transport.grpc_gateway import GrpcGateway
from cluster.transport.member_status import member_status
from cluster.transport.poller import Poller
from cluster.transport.server import ClientPort
from tests.reader.scripted import FakeMember, open_reader
from tests.tree import SAFELY

REAL = Path(__file__).resolve().parent.parent / "data" / "aeron-cluster-1.53"


@pytest.fixture(scope="module")
def real_members(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    with tarfile.open(REAL / "members.tar.xz") as archive:
        archive.extractall(folder, **SAFELY)
    return sorted(path.parent for path in folder.rglob("archive") if path.is_dir())


class Nobody:
    def on_connect(self, connection_id):
        raise AssertionError("a reader is no client")

    on_frames = on_disconnect = on_connect

    def has_session(self, connection_id):
        return False


@pytest.fixture
def served(real_members, tmp_path):
    """A function: endpoints of all members' directories, served over a medium."""
    stops = []

    def serve(medium):
        endpoints = {}
        for member_id, folder in enumerate(real_members):

            def open_log(folder=folder, member_id=member_id):
                return ServedMember(
                    cluster_dir=str(folder / "cluster"),
                    archive_dir=str(folder / "archive"),
                    aeron_dir=str(folder / "driver"),
                    cluster_id=0,
                    member_id=member_id,
                )

            ipc = Endpoint(Medium.IPC, path=str(tmp_path / f"{member_id}.sock"))
            listen = Endpoint(Medium.GRPC, "127.0.0.1", 0)
            gateway = GrpcGateway(listen, _no_sessions, open_log, 1 << 20)
            poller = Poller()
            port = ClientPort(
                [ipc, Endpoint(Medium.TCP, "127.0.0.1", 0)],
                poller=poller,
                member_id=member_id,
                cluster_id=0,
                incarnation=1,
                message_length_max=1 << 20,
                hand_over=gateway.adopt,
            )
            endpoints[member_id] = {"grpc": gateway.start(), "ipc": ipc, "tcp": port.endpoints[1]}[medium]
            turner = Turner(poller, port)
            stops.extend([turner.stop, port.shutdown, poller.close, gateway.stop])
        return ",".join(f"{member_id}={endpoint}" for member_id, endpoint in endpoints.items())

    yield serve
    for stop in stops:
        stop()


def _no_sessions(certificate_name):
    raise AssertionError("readers open no session")


class Turner:
    def __init__(self, poller, port):
        import threading

        self.is_stopped = False
        self.poller, self.port = poller, port
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.is_stopped:
            self.poller.wait(1)
            self.port.poll(Nobody())

    def stop(self):
        self.is_stopped = True
        self.poller.wake()
        self.thread.join()


@pytest.mark.parametrize("medium", ["grpc", "tcp", "ipc"])
def test_every_medium_gives_what_the_directory_gives(served, real_members, medium):
    with (
        LogReader.open(dir=str(real_members[0])) as directory,
        LogReader.open(endpoints=served(medium)) as remote,
    ):
        assert remote.identity == directory.identity
        assert remote.start_position == directory.start_position
        assert remote.end_position() == directory.end_position() == remote.commit_position()
        assert remote.term_length == directory.term_length
        assert remote.time_unit == directory.time_unit
        assert list(remote.entries()) == list(directory.entries())
        middle = list(directory.entries(columns=["position"]))[7]["position"]
        for position in (middle, remote.end_position()):
            assert remote.term_before(position) == directory.term_before(position) is not None
        assert remote.term_before(remote.end_position() + 32) is None
        assert list(remote.entries(middle)) == list(directory.entries(middle))
        assert list(remote.entries(to_position=middle)) == list(directory.entries(to_position=middle))


@pytest.mark.parametrize("medium", ["grpc", "tcp", "ipc"])
@pytest.mark.parametrize("received", [100, 1500, 50_000])
def test_messages_that_a_socket_cuts_come_whole(served, real_members, medium, received, monkeypatch):
    """A message of several frames is whole wherever what was received at once ends."""
    monkeypatch.setattr("cluster.transport.log_client.RECEIVE_BYTES", received)
    with (
        LogReader.open(dir=str(real_members[0])) as directory,
        LogReader.open(endpoints=served(medium)) as remote,
    ):
        expected = list(directory.entries())
        assert max(len(entry.get("payload", b"")) for entry in expected) > 4000, "of several frames"
        assert list(remote.entries()) == expected


def test_the_entries_are_those_of_the_real_cluster(served):
    with gzip.open(REAL / "log.jsonl.gz", "rt") as lines:
        expected = [json.loads(line)["position"] for line in lines]
    with LogReader.open(endpoints=served("grpc")) as remote:
        assert [entry["position"] for entry in remote.entries(columns=["position"])] == expected


def test_the_term_before_a_position_is_asked_of_one_that_has_committed_so_far():
    down, behind, level = FakeMember(0), FakeMember(1, committed=6336), FakeMember(2)
    level.terms = {6400: "1:77:5"}
    reader = open_reader([down, behind, level])
    down.is_up = False
    assert reader.term_before(6400) == "1:77:5"
    level.terms = {}
    assert reader.term_before(6400) is None, "a member of 0.1 says none"
    level.is_up = False
    assert reader.term_before(6400) is None


@pytest.mark.parametrize("medium", ["grpc", "tcp", "ipc"])
def test_a_range_that_begins_within_a_frame_is_refused_by_name(served, medium):
    with LogReader.open(endpoints=served(medium)) as remote:
        start = remote.start_position
        told = f"from_position {start + 32} is within the frame that begins at {start}"
        with pytest.raises(ConfigurationError, match=told):
            list(remote.blocks(start + 32, remote.end_position()))


@pytest.mark.parametrize("medium", ["grpc", "tcp", "ipc"])
def test_a_member_tells_how_it_stands(served, medium):
    status = member_status(served(medium).split(",")[1].partition("=")[2])

    assert status.member_id == 1
    assert status.commit_position > 0


def test_when_no_member_answers_each_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(TimedOut, match=f"member 0: tcp:127.0.0.1:{port}: Connection refused"):
        RemoteLog(f"0=tcp:127.0.0.1:{port}", give_up_s=0.1)
    with pytest.raises(TimedOut, match=f"member 3: 127.0.0.1:{port}: Connection refused"):
        RemoteLog(f"3=127.0.0.1:{port}", give_up_s=0.1)


@pytest.mark.parametrize("medium", ["grpc", "tcp", "ipc"])
@pytest.mark.parametrize(
    "wanted",
    [
        EntryFilter(("TIMER", "SESSION_CLOSE")),
        EntryFilter(sessions=(2,)),
        EntryFilter(("SESSION_OPEN", "SESSION_MESSAGE"), sessions=(1, 3)),
        EntryFilter(sessions=tuple(range(2, 1000))),
    ],
    ids=["types", "session", "both", "more than a request takes"],
)
def test_members_and_directories_give_the_entries_that_are_wanted(served, real_members, medium, wanted):
    with LogReader.open(dir=str(real_members[0])) as directory:
        every = [entry for entry in directory.entries() if is_wanted(entry, wanted)]
    assert every
    for where in ({"dir": str(real_members[0])}, {"endpoints": served(medium)}):
        with LogReader.open(entry_filter=wanted, **where) as reader:
            assert list(reader.entries()) == every
            middle = every[len(every) // 2]["position"]
            assert list(reader.entries(middle)) == every[len(every) // 2 :]
            assert list(reader.entries(to_position=middle + 1)) == every[: len(every) // 2 + 1]
            assert reader.boundary_at_or_after(middle) == middle


def is_wanted(entry, wanted):
    is_of_session = not wanted.sessions or entry.get("clusterSessionId") in wanted.sessions
    return entry["entryType"] in wanted.entry_types and is_of_session


@pytest.fixture
def received(monkeypatch):
    """How many bytes sockets gave, each time that one did."""
    lengths = []
    whole = FrameSplitter.split
    monkeypatch.setattr(
        FrameSplitter, "split", lambda self, data: lengths.append(len(data)) or whole(self, data)
    )
    return lengths


def test_what_is_not_wanted_does_not_cross_the_network(served, received):
    endpoints = served("tcp")

    def bytes_of(**options):
        with LogReader.open(endpoints=endpoints, **options) as reader:
            received.clear()
            assert list(reader.batches())
            return sum(received)

    everything = bytes_of()
    assert bytes_of(entry_filter=EntryFilter(("TIMER",))) < everything / 10
    assert bytes_of(entry_filter=EntryFilter()) == everything


@pytest.mark.parametrize("options", [{}, {"entry_filter": EntryFilter(sessions=(2,))}])
def test_a_boundary_is_looked_for_by_the_member(served, received, options):
    """What lies before it, up to a term buffer of log, does not cross the network."""
    with LogReader.open(endpoints=served("tcp"), **options) as reader:
        last = list(reader.entries())[-1]["position"]
        received.clear()
        assert reader.boundary_at_or_after(last) == last
        assert reader.boundary_at_or_after(last - 1) == last
        assert last > 50_000 and sum(received) < 5_000


# -- members that fail, scripted --


@pytest.fixture
def members():
    return [FakeMember(0, Role.LEADER), FakeMember(1), FakeMember(2)]


def positions(reader, *range_, **options):
    return [(position, len(block)) for position, block in reader.blocks(*range_, **options)]


def whole(begin, end):
    return [(position, 64) for position in range(begin, end, 64)]


def test_followers_are_read_and_the_leader_is_left_alone(members):
    assert positions(open_reader(members, spread=0)) == whole(0, 6400)
    assert positions(open_reader(members, spread=1)) == whole(0, 6400)

    assert [len(member.reads) for member in members] == [0, 1, 1]


@pytest.mark.conformance("P-36")
def test_what_breaks_off_at_one_member_goes_on_at_the_next(members):
    members[1].blocks_until_break = 30
    members[2].blocks_until_break = 20

    assert positions(open_reader(members)) == whole(0, 6400)
    assert members[2].reads == [(30 * 64, 6400)]
    assert members[0].reads == [(50 * 64, 6400)]


def test_a_message_that_a_member_sends_without_its_end_is_damage(members, monkeypatch):
    """Passed over, it would be missing, and nobody would know."""

    def frame(position, whole=FakeMember.frame):
        found = whole(position).copy()
        found[5] = 0x80 if position == 640 else found[5]  # of several frames, and the first of them
        return found

    monkeypatch.setattr(FakeMember, "frame", staticmethod(frame))
    entries = open_reader(members).entries()
    assert [next(entries)["position"] for _ in range(10)] == list(range(0, 640, 64))
    with pytest.raises(LogDamaged, match=r"a message without its end \(log position 640\)"):
        next(entries)


def test_a_member_that_is_behind_is_passed_over(members):
    members[1].committed = 640
    reader = open_reader(members)

    assert reader.end_position() == 6400
    assert positions(reader) == whole(0, 6400)


@pytest.mark.conformance("P-37")
def test_a_range_that_was_planned_elsewhere_is_waited_for(members):
    """The planner saw a commit position that nobody here has yet: a new leader may tell less for a moment."""
    for member in members:
        member.committed = 640
    reader = open_reader(members)
    blocks = reader.blocks(0, 1280, is_committed=True)
    begin = [position for position, _ in zip(range(0, 640, 64), blocks, strict=False)]
    members[2].committed = 1280

    assert begin + [position for position, _ in blocks] == list(range(0, 1280, 64))


@pytest.mark.conformance("P-38")
def test_commit_positions_never_fall_and_a_stalled_one_is_asked_of_all(members):
    reader = open_reader(members)
    assert reader.commit_position() == 6400
    members[1].committed = 64
    assert reader.commit_position() == 6400
    members[2].committed = 12_800
    assert reader.commit_position() == 6400
    reader.log._wait(0.5)
    assert reader.commit_position() == 12_800


def test_a_follower_that_goes_down_is_replaced(members):
    reader = open_reader(members)
    members[1].is_up = False
    members[2].committed = 7000

    assert reader.commit_position() == 7000
    members[1].is_up = True
    members[2].is_up = members[0].is_up = False
    assert reader.commit_position() == 7000


@pytest.mark.conformance("P-43")
def test_what_every_member_purged_is_data_loss(members):
    for member in members:
        member.start = 640
    reader = open_reader(members)

    with pytest.raises(DataLoss, match="member 2: position 0 was purged, the log begins at 640 there"):
        positions(reader, 0)
    members[2].start = 0
    assert positions(reader, 0) == whole(0, 6400)


@pytest.mark.parametrize("spread", [0, 1])
def test_the_log_begins_where_that_of_the_member_with_most_of_it_does(members, spread):
    members[1].start, members[0].start = 3200, 640
    reader = open_reader(members, spread)

    assert reader.start_position == 0
    assert positions(reader) == whole(0, 6400)
    members[2].is_up = False
    reader.end_position()
    assert reader.start_position == 640, "of those that answer"
    assert positions(reader) == whole(640, 6400)


def back_after(limit_s, seconds, *members):
    """Notes what a reader waits in ``seconds``; the members are up when that is more than ``limit_s``."""

    def on_wait(waited_s):
        seconds.append(waited_s)
        for member in members:
            member.is_up = sum(seconds) > limit_s

    return on_wait


def test_what_lies_before_is_not_given_up_while_a_member_that_may_have_it_is_silent(members):
    """As of a member that was filled from a snapshot, and is the first to answer after a restart of all."""
    members[1].start = 3200
    members[0].is_up = members[2].is_up = False
    seconds = []
    reader = open_reader(members, on_wait=back_after(10, seconds, members[0], members[2]))
    assert reader.start_position == 3200 and reader.retained_from(3200) == 3200 and not seconds
    assert reader.retained_from(64) == 64
    for member in (members[0], members[2]):
        member.is_up = False
    reader.end_position()
    seconds.clear()
    assert positions(reader) == whole(0, 6400)
    assert reader.warnings == []


def test_a_member_that_stays_silent_is_told_of_and_not_waited_for_again(members):
    members[1].start, members[2].start = 3200, 640
    members[0].is_up = False
    seconds = []
    reader = open_reader(members, on_wait=seconds.append)

    assert reader.retained_from(0) == 640
    assert 20 <= sum(seconds) < 21
    assert reader.earliest_position() == 640 and 20 <= sum(seconds) < 21, "it is not waited for again"
    (told,) = reader.warnings
    assert "begins at 640 at the members that answer" in told and "member 0: down" in told
    members[0].is_up = True
    assert reader.earliest_position() == 0


def test_the_end_is_not_that_of_one_member_while_the_others_are_silent(members):
    """As of a member that catches up, and is the first to answer."""
    members[1].committed = 640
    members[0].is_up = members[2].is_up = False
    seconds = []
    reader = open_reader(members, on_wait=back_after(10, seconds, members[2]))
    assert reader.end_position() == 6400 and 10 < sum(seconds) < 11, "two of three have answered"
    assert reader.warnings == []


def test_the_end_is_that_of_one_member_when_the_others_stay_silent(members, caplog):
    members[0].is_up = members[2].is_up = False
    seconds = []
    reader = open_reader(members, on_wait=seconds.append)
    assert reader.end_position() == reader.end_position() == 6400 and 20 <= sum(seconds) < 21
    [told], [said] = reader.warnings, caplog.messages
    assert "ends at 6400 at the members that answer; others may" in told and "19 s: member 0: down;" in said


def test_a_member_that_came_back_is_waited_for_when_it_is_silent_again(members):
    seconds = []
    reader = open_reader(members, on_wait=seconds.append)
    for is_up in (False, True, False):
        members[0].is_up, members[2].is_up = is_up, False
        reader.end_position()
    assert 40 <= sum(seconds) < 42 and len(reader.warnings) == 2


def test_members_that_are_all_silent_leave_what_is_known_of_the_begin(members):
    members[0].start = members[1].start = members[2].start = 640
    reader = open_reader(members)
    for member in members:
        member.is_up = False
    with pytest.raises(TimedOut):
        reader.end_position()
    assert reader.start_position == 640


def test_a_boundary_is_looked_for_at_a_member_that_holds_the_log_before_it(members):
    members[1].start = 3200
    reader = open_reader(members)

    assert reader.boundary_at_or_after(3250, known=0, is_committed=True) == 3264
    assert reader.boundary_at_or_after(100) == 128
    members[1].start = members[2].start = members[0].start = 3200
    with pytest.raises(DataLoss, match="position 0 was purged, the log begins at 3200 there"):
        reader.boundary_at_or_after(3250, known=0, is_committed=True)
    reader.end_position()
    with pytest.raises(DataLoss, match="position 100 was purged, the log begins at 3200"):
        reader.boundary_at_or_after(100)


def test_a_purge_that_one_member_tells_of_has_all_of_them_asked(members):
    reader = open_reader(members)
    for member in members:
        member.start = 640

    assert reader.commit_position() == 6400
    assert reader.start_position == 640


@pytest.mark.conformance("P-44")
def test_damage_at_one_member_is_read_at_another_and_told_when_all_have_it(members):
    for member in members:
        member.ends_with = "segment x at offset 3: torn"
        member.committed = 6400
    members[2].ends_with = None
    assert positions(open_reader(members)) == whole(0, 6400)

    members[2].ends_with = "the same"
    for member in members:
        member.committed = 640
    with pytest.raises(LogDamaged):
        positions(open_reader(members), 0, 1280, is_committed=True)


def test_frames_that_do_not_join_on_are_not_handed_out(members):
    members[1].frame = lambda position: FakeMember.frame(position + 64)

    assert positions(open_reader(members)) == whole(0, 6400)
    assert members[2].reads


def test_endpoints_of_two_clusters_are_refused(members):
    members[2].session_id = 6

    with pytest.raises(ConfigurationError, match="member 2 holds the log"):
        open_reader(members)
    assert all(member.is_closed for member in members)


def test_a_cluster_of_one_that_was_made_anew_is_refused_with_both_logs(members):
    with open_reader(members[:1]) as reader:
        assert positions(reader)
        members[0].session_id = 6
        said = r"member 0 holds the log of cluster 0:\d+:6, but what was read before is cluster 0:\d+:\d+;"
        with pytest.raises(ConfigurationError, match=said):
            reader.end_position()


def test_a_wall_clock_that_jumps_ends_no_wait_for_a_member(members, monkeypatch):
    hours = itertools.count(0, 3_600_000_000_000)
    clock = SimpleNamespace(time_ns=lambda: next(hours), monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr("cluster.transport.clock.time", clock)
    for member in members:
        member.is_up = False

    def wait(seconds):
        members[1].is_up = True

    log = RemoteLog(
        "0=h0:1,1=h1:1,2=h2:1",
        open_client=lambda endpoint: members[int(endpoint.host[1:])],
        wait=wait,
    )
    assert log.commit_position() == members[1].committed


@pytest.mark.conformance("P-39", "P-60")
def test_silence_of_all_ends_in_an_error_that_names_each(members):
    reader = open_reader(members)
    for member in members:
        member.is_up = False

    with pytest.raises(TimedOut, match=r"member 0: down; member 1: down; member 2: down"):
        positions(reader, 0, 640, is_committed=True)


@pytest.mark.parametrize("given", ["h0:1,h1:1", "tcp:h0:1,tcp:h1:1"])
def test_endpoints_need_no_ids_and_a_member_tells_of_those_that_were_not_given(members, given):
    for member in members:
        member.ingress_endpoints = "0=h0:1,1=h1:1,2=h2:1"
        member.tcp_endpoints = "0=tcp:h0:1,1=tcp:h1:1,2=tcp:h2:1"
    members[0].is_up = False
    reader = open_reader(members, endpoints=given)

    members[1].is_up = False

    assert reader.end_position() == 6400
    assert sum(len(block) for _, block in reader.blocks(0, 640)) == 640
    assert members[2].reads == [(0, 640)]


def test_the_log_begins_where_a_member_has_most_of_it_that_was_only_told_of(members):
    for member in members:
        member.ingress_endpoints = "0=h0:1,1=h1:1,2=h2:1"
    members[0].start = members[1].start = 640

    assert open_reader(members, endpoints="h0:1").start_position == 0


def test_silence_of_members_without_ids_names_their_endpoints_alone(members):
    for member in members:
        member.is_up = False
    with pytest.raises(TimedOut, match=r"no member answers: down; down(?m:$)"):
        open_reader(members, endpoints="h0:1,h1:1")


def test_that_nobody_answers_is_said_once_before_it_is_given_up(members, caplog):
    for member in members:
        member.is_up = False
    with pytest.raises(TimedOut):
        open_reader(members)
    [said] = caplog.messages
    assert (
        said
        == "no member answers yet: member 0: down; member 1: down; member 2: down; asking for another 19 s"
    )


def test_a_range_that_is_known_to_be_committed_is_read_without_asking_all_members_again(monkeypatch):
    members = [FakeMember(0), FakeMember(1)]
    with open_reader(members) as reader:
        end = reader.commit_position()
        monkeypatch.setattr(reader.log, "_ask_all", lambda: pytest.fail("all are asked"))
        assert sum(len(block) for _, block in reader.blocks(0, end)) == end
    for member in members:
        member.committed = 12_800
    with open_reader(members) as reader:
        assert reader.commit_position() == 12_800
        for member in members:
            member.committed = 19_200
        assert sum(len(block) for _, block in reader.blocks(0, 1 << 40)) == 19_200
