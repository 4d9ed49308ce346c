"""``cluster top --dir`` names a member as its mark file does, whatever its folder is called."""

import json

from cluster.archive.files import OsFiles
from cluster.archive.mark_files import ClusterMarkFile
from cluster.counters import CountersFile
from cluster.protocol.counter_types import CounterTypeId
from cluster.protocol.enums import ClusterComponentType
from tests.node.processes import run


def test_a_stopped_member_has_the_id_of_its_mark_file_and_no_sessions(tmp_path):
    home = tmp_path / "lib"
    for name in ("cluster", "driver"):
        (home / name).mkdir(parents=True)
    ClusterMarkFile.create(
        str(home / "cluster"),
        files=OsFiles(),
        component_type=ClusterComponentType.CONSENSUS_MODULE,
        now_ms=1,
        cluster_id=0,
        member_id=5,
        aeron_directory=str(home / "driver"),
        ingress_channel="aeron:udp",
    ).close()
    counters = CountersFile.create(str(home / "driver" / "cnc.dat"), pid=1, now_ms=1)
    counters.allocate(CounterTypeId.CLIENT_SESSION, b"", "a session")
    counters.close()

    (member,) = json.loads(run("top", "--dir", str(home), "--once", "--json").stdout)["members"]
    assert (member["memberId"], member["isAlive"], member["sessions"]) == (5, False, 0)
