"""Members that are started with other lists, and put back: what one history has committed stays."""

from random import Random

import pytest

from tests.member.in_memory.cluster import LONG_NS, SECOND
from tests.member.in_memory.member import log_bytes
from tests.member.parted import Parted, forget_identity


@pytest.fixture(autouse=True)
def _no_identity(monkeypatch):
    forget_identity(monkeypatch)


class Wandering(Parted):
    """Keeps what each member has ever had committed in its log."""

    def __init__(self, seed):
        super().__init__(seed=seed)
        self.had = {member.member_id: b"" for member in self.members}

    def look(self):
        """Nothing that a member had committed is replaced in its log by anything else."""
        for member in self.members:
            if member.recording is None:
                continue
            had, end = self.had[member.member_id], member.commit_position
            now = log_bytes(member, 0, max(end, len(had)))
            assert now[: len(had)] == had[: len(now)], f"{member.name} has other bytes than it had committed"
            if end > len(had):
                self.had[member.member_id] = now[:end]

    def run(self, duration_ns):
        super().run(duration_ns)
        self.look()

    def stop(self):
        self.look()
        super().stop()


def check_together(cluster):
    """Whoever leads or follows in one term has one log."""
    terms = {}
    for member in cluster.members:
        if member.is_leading or member.is_following:
            terms.setdefault(member.leadership_term_id, []).append(member)
    for members in terms.values():
        end = min(member.commit_position for member in members)
        assert len({log_bytes(member, 0, end) for member in members}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(31))
def test_what_a_member_had_committed_is_never_replaced(seed):
    random = Random(seed)
    cluster = Wandering(seed)
    for _ in range(2):
        cluster.stop()
        for _ in range(random.randint(1, 3)):
            ids = random.choice([(0,), (1,), (2,), (0, 1), (1, 2), (0, 2)])
            try:
                cluster.run_alone(*ids)
            except Parted.NobodyLeads:
                cluster.stop()
                cluster.list_of.clear()
        for id_ in random.sample(range(3), 3):
            cluster.members[id_].start()
            cluster.run(random.choice([0, SECOND, LONG_NS]))
        for _ in range(4):
            cluster.run(LONG_NS // 2)
            check_together(cluster)
        if random.random() < 0.5 and cluster.leader is not None:
            cluster.leader.kill()
            cluster.run(LONG_NS)
            check_together(cluster)
