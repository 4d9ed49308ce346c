"""The options of a read of a real Aeron Cluster over its own medium."""

from __future__ import annotations

import pytest

from cluster.errors import ConfigurationError
from spark_connector.options.cluster_options import SourceOptions


@pytest.mark.conformance("P-17")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"endpoints": "0=a:9000", "consensusEndpoints": "a:9003"},
            "give either option consensusEndpoints or aeronArchive, or option endpoints",
        ),
        (
            {"clusterDir": "/m", "consensusEndpoints": "a:9003"},
            "give either option clusterDir or option consensusEndpoints; both are given",
        ),
        (
            {"consensusEndpoints": "a:1", "service": "a:B"},
            "option service is given, and consensusEndpoints, which is not for it: give one",
        ),
        ({"consensusEndpoints": "a"}, "consensusEndpoints is 'a': consensus endpoint 'a': expected host"),
        ({"consensusEndpoints": "a:1", "clusterId": "x"}, "option clusterId is 'x'; expected a number"),
        ({"clusterDir": "/m", "aeronDir": "/d"}, "option aeronDir goes with consensusEndpoints"),
        ({"clusterDir": "/m", "aeronFileIoMax": "64k"}, "option aeronFileIoMax goes with consensusEndpoints"),
        ({"clusterDir": "/m", "aeronRateMax": "10m"}, "option aeronRateMax goes with consensusEndpoints"),
        ({"consensusEndpoints": "a:1", "aeronRateMax": "0"}, "option aeronRateMax is '0'; expected a size"),
        ({"aeronArchive": "a:1,b:1"}, "aeronArchive is 'a:1,b:1': archive 'a:1,b:1': expected one, by its"),
        ({"aeronArchive": "a:1", "recordingId": "x"}, "option recordingId is 'x'; expected a number"),
        ({"aeronArchive": "a:1", "consensusEndpoints": "a:9003"}, "or option aeronArchive; both are given"),
        ({"aeronArchive": "a:1", "service": "a:B"}, "option service is given, and aeronArchive, which"),
        ({"consensusEndpoints": "a:1", "recordingId": "1"}, "option recordingId goes with aeronArchive"),
        (
            {"consensusEndpoints": "a:1", "minPartitions": "9"},
            "option minPartitions is 9, more than aeronReplaysMax, which is 8",
        ),
    ],
)
def test_what_a_read_of_a_real_cluster_cannot_be_is_refused(options, says):
    with pytest.raises(ConfigurationError) as error:
        SourceOptions.parse(options)
    assert says in str(error.value)


def test_a_read_of_a_real_cluster_takes_no_more_replays_than_said():
    given = {"consensusEndpoints": "a:9003", "readPreference": "leader", "requestTimeoutMs": "9"}
    assert SourceOptions.parse(given).plan_limits.max_partitions == 8
    assert SourceOptions.parse(given | {"aeronReplaysMax": "3"}).plan_limits.max_partitions == 3
    assert SourceOptions.parse({"aeronArchive": "a:1"}).plan_limits.max_partitions == 8
    assert SourceOptions.parse({"endpoints": "a:1"}).plan_limits.max_partitions == 200
