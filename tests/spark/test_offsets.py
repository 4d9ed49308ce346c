"""Offsets of the source: what stands in a checkpoint, and whose log and which range it names."""

import json

import pytest

from cluster.errors import ConfigurationError, DataLoss
from cluster.protocol.token import identity_text
from spark_connector.offsets import Offset, batch_range, check_cluster
from spark_connector.planning import PlanLimits

CLUSTER = identity_text(0, 1795233405608, -1877313736)
LIMITS = PlanLimits(max_bytes=1 << 26, min_partitions=1, max_partitions=200)
START = Offset(CLUSTER, 96)
END = Offset(CLUSTER, 250144, 96, LIMITS)

# As versions wrote them: a checkpoint of any must open for ever.
GOLDEN = [
    (START, '{"v": 2, "cluster": "0:1795233405608:-1877313736", "position": 96}'),
    (
        END,
        '{"v": 2, "cluster": "0:1795233405608:-1877313736", "position": 250144, "from": 96, '
        '"plan": {"maxBytesPerPartition": 67108864, "minPartitions": 1, "maxPartitions": 200}}',
    ),
    (Offset(None, 0), '{"v": 2, "cluster": null, "position": 0}'),
]
GOLDEN_1 = [
    (START, '{"cluster": "0:1795233405608:-1877313736", "initial": true, "position": 96, "v": 1}'),
    (
        Offset(CLUSTER, 250144, from_position=96),
        '{"cluster": "0:1795233405608:-1877313736", "from": 96, "position": 250144, "v": 1}',
    ),
    (Offset(None, 0), '{"cluster": null, "initial": true, "position": 0, "v": 1}'),
]


@pytest.mark.conformance("P-18")
@pytest.mark.parametrize("offset, text", GOLDEN)
def test_an_offset_is_written_as_ever_and_read_back(offset, text):
    assert json.dumps(offset.to_json()) == text
    assert Offset.from_json(json.loads(text)) == offset


@pytest.mark.conformance("P-18")
@pytest.mark.parametrize("offset, text", GOLDEN_1)
def test_an_offset_of_version_1_is_read(offset, text):
    assert Offset.from_json(json.loads(text)) == offset


def test_a_plan_may_say_exactly_how_many_tasks_there_are():
    offset = Offset(CLUSTER, 320, 96, PlanLimits(4096, min_partitions=5, max_partitions=5))

    assert Offset.from_json(offset.to_json()) == offset


@pytest.mark.conformance("P-19")
def test_an_offset_of_a_newer_version_is_refused():
    with pytest.raises(ConfigurationError, match=r"version 4.*newer release.*up to version 3"):
        Offset.from_json({"v": 4, "cluster": CLUSTER, "position": 5})


def test_an_offset_of_several_clusters_is_refused_where_one_is_read():
    offset = {"v": 3, "clusters": {"eu": {"v": 2, "cluster": CLUSTER, "position": 5}}}
    with pytest.raises(ConfigurationError, match=r"of several clusters .* such as endpoints\.NAME"):
        Offset.from_json(offset)


PLAN = {"maxBytesPerPartition": 64, "minPartitions": 1, "maxPartitions": 2}


@pytest.mark.parametrize(
    "given",
    [
        None,
        7,
        {},
        {"v": "1"},
        {"v": 1},
        {"v": 1, "cluster": CLUSTER, "position": 96},
        {"v": 1, "cluster": CLUSTER, "position": -1, "from": 0},
        {"v": 1, "cluster": 7, "position": 96, "from": 0},
        {"v": 1, "cluster": CLUSTER, "position": "96", "from": 0},
        {"v": 1, "cluster": CLUSTER, "position": True, "from": 0},
        {"v": 2, "cluster": CLUSTER, "position": "96"},
        {"v": 2, "cluster": CLUSTER, "position": 104},
        {"v": 2, "cluster": CLUSTER, "position": 96, "from": 8, "plan": PLAN},
        {"v": 2, "cluster": CLUSTER, "position": 96, "from": None, "plan": PLAN},
        {"v": 2, "cluster": CLUSTER, "position": 96, "from": 0},
        {"v": 2, "cluster": CLUSTER, "position": 96, "from": 0, "plan": [64, 1, 2]},
        {"v": 2, "cluster": CLUSTER, "position": 96, "from": 0, "plan": PLAN | {"maxPartitions": "2"}},
        {"v": 2, "cluster": CLUSTER, "position": 96, "from": 0, "plan": PLAN | {"minPartitions": 3}},
    ],
)
def test_what_is_no_offset_is_refused_with_its_text(given):
    with pytest.raises(ConfigurationError) as refused:
        Offset.from_json(given)
    assert repr(given) in str(refused.value)


@pytest.mark.conformance("P-20")
def test_a_checkpoint_of_another_cluster_is_refused_naming_both():
    other = identity_text(0, 1800000000000, 5)

    with pytest.raises(DataLoss) as refused:
        check_cluster(END, other)
    assert CLUSTER in str(refused.value) and other in str(refused.value)


def test_a_checkpoint_taken_before_the_first_entry_fits_the_log_that_then_began():
    check_cluster(Offset(None, 0), CLUSTER)
    with pytest.raises(DataLoss):
        check_cluster(END, None)


def test_a_place_within_a_log_that_is_not_known_fits_none():
    with pytest.raises(DataLoss, match="cluster None"):
        check_cluster(Offset(None, 96), CLUSTER)


def test_a_log_whose_head_was_purged_is_known_by_what_it_still_tells():
    purged = identity_text(0, None, None)

    assert purged == "0:?:?"
    assert check_cluster(END, purged) == CLUSTER
    assert check_cluster(Offset(purged, 96, from_position=0), CLUSTER) == CLUSTER
    with pytest.raises(DataLoss):
        check_cluster(END, identity_text(1, None, None))


def test_a_batch_after_the_first_runs_from_end_to_end():
    following = Offset(CLUSTER, 250240, from_position=250144)

    assert batch_range(END, following) == (250144, 250240)


def test_the_first_batch_runs_from_where_its_end_says_even_if_latest_has_moved():
    resolved_again = Offset(CLUSTER, 300000)

    assert batch_range(resolved_again, END) == batch_range(START, END) == (96, 250144)


@pytest.mark.conformance("P-27")
def test_a_batch_after_a_purge_that_was_no_failure_begins_behind_it():
    later = Offset(CLUSTER, END.position + 960, END.position + 320, LIMITS)

    assert batch_range(END, later) == (later.from_position, later.position)


def test_a_batch_between_initial_offsets_is_empty():
    moved = Offset(CLUSTER, 300000)

    assert batch_range(START, moved) == (300000, 300000)


def test_offsets_that_run_backwards_are_refused():
    with pytest.raises(DataLoss, match="backwards"):
        batch_range(Offset(CLUSTER, 300000, from_position=96), END)
