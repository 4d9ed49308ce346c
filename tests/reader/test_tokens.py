"""Position tokens: a reader waits until the log is committed as far as a client knows it to be."""

import json

import pytest

from cluster.errors import ConfigurationError, TimedOut
from cluster.protocol.token import PositionToken, parse_token
from cluster.reader import LogIdentity, LogReader
from spark_connector.offsets import Offset
from spark_connector.options.cluster_options import SourceOptions
from spark_connector.planning import PlanLimits

IDENTITY = LogIdentity(0, 1795233405608, 1877313736)
CLUSTER = "0:1795233405608:1877313736"


class SlowLog:
    """A member that commits 100 bytes each time that somebody has waited for it."""

    def __init__(self, end, *, is_live=True, identity=IDENTITY):
        self.end = end
        self.is_live = is_live
        self.identity = identity
        self.now_ns = 0
        self.step = 100
        self.is_closed = False

    def commit_position(self):
        assert self.is_live
        return self.end

    def end_position(self):
        return self.end

    def wait(self, seconds):
        self.now_ns += int(seconds * 1e9)
        self.end += self.step

    def close(self):
        self.is_closed = True


def await_token(log, token, timeout_s=1.0):
    LogReader(log).await_token(token, timeout_s, now_ns=lambda: log.now_ns, wait=log.wait)


def test_a_token_is_the_text_of_an_offset_and_an_offset_is_a_token():
    token = PositionToken(CLUSTER, 250144)
    assert json.loads(token.to_text()) == {"v": 2, "cluster": CLUSTER, "position": 250144}
    assert Offset.from_json(json.loads(token.to_text())) == Offset(CLUSTER, 250144)

    end_of_a_batch = Offset(CLUSTER, 250144, 96, PlanLimits(67108864, 1, 200))
    for offset in (end_of_a_batch.to_json(), {"v": 1, "cluster": CLUSTER, "position": 250144}):
        assert parse_token(json.dumps(offset)) == token


@pytest.mark.parametrize(
    "text",
    [
        "",
        "250144",
        "null",
        "{}",
        '{"v": 3, "cluster": "0:1:2", "position": 5}',
        '{"v": 0, "cluster": "0:1:2", "position": 5}',
        '{"v": true, "cluster": "0:1:2", "position": 5}',
        '{"v": 2, "cluster": "0:1:2", "position": -1}',
        '{"v": 2, "cluster": "0:1:2", "position": "5"}',
        '{"v": 2, "cluster": 7, "position": 5}',
        None,
        "[" * 100_000,
    ],
)
def test_what_is_no_token_is_refused_with_its_text(text):
    with pytest.raises(ConfigurationError, match="is no position token; expected the text of client"):
        parse_token(text)


def test_a_reader_waits_until_the_log_is_committed_so_far():
    log = SlowLog(end=96)
    await_token(log, PositionToken(CLUSTER, 480).to_text())
    assert log.end == 496

    await_token(log, PositionToken(CLUSTER, 496).to_text())
    assert log.end == 496


def test_a_log_without_an_entry_is_waited_for_as_well():
    log = SlowLog(end=0, identity=None)
    log.step = 0
    await_token(log, PositionToken(None, 0).to_text())
    with pytest.raises(TimedOut, match="position 96 of the token is not committed here within 1 s"):
        await_token(log, PositionToken(CLUSTER, 96).to_text())


def test_a_member_that_does_not_get_there_is_told_with_how_far_it_is():
    log = SlowLog(end=96)
    log.step = 0
    with pytest.raises(
        TimedOut, match=r"position 97 of the token is not committed here within 1 s.*committed up to 96"
    ):
        await_token(log, PositionToken(CLUSTER, 97).to_text())


def test_a_member_that_stands_is_read_as_far_as_it_recorded():
    await_token(SlowLog(end=96, is_live=False), PositionToken(CLUSTER, 96).to_text())


@pytest.mark.parametrize("cluster", ["1:1795233405608:1877313736", "0:1795233405608:5", "nonsense"])
def test_a_token_of_another_cluster_is_refused_at_once(cluster):
    log = SlowLog(end=96)
    with pytest.raises(ConfigurationError, match=f"the token is of cluster {cluster}, this log of {CLUSTER}"):
        await_token(log, PositionToken(cluster, 96).to_text())
    assert log.now_ns == 0


def test_a_log_whose_head_a_real_archive_purged_fits_by_its_cluster_id():
    await_token(SlowLog(end=96, identity=LogIdentity(0, None, None)), PositionToken(CLUSTER, 96).to_text())


def test_a_wrong_option_is_named():
    with pytest.raises(ConfigurationError, match="option atLeast is '12': '12' is no position token"):
        SourceOptions.parse({"endpoints": "127.0.0.1:9000", "atLeast": "12"})
