"""Options that are Kafka's, and options of which one makes another useless: users are told."""

import pytest

from cluster.errors import ConfigurationError
from spark_connector.data_source import ClusterDataSource
from spark_connector.options.cluster_options import SinkOptions, SourceOptions
from spark_connector.options.remarks import remarks


@pytest.mark.parametrize(
    "given, says",
    [
        ("kafka.bootstrap.servers", "give option endpoints, such as 0=host:9000,1=host:9010"),
        ("subscribe", "a log has no topics; entryTypes, sessions and templateIds say which"),
        ("topic", "a log has no topics; all rows go to the cluster of option endpoints"),
        ("groupIdPrefix", "give option consumerGroup"),
        ("maxOffsetsPerTrigger", "give option maxEntriesPerTrigger"),
    ],
)
def test_an_option_of_kafka_is_answered_with_what_is_here_instead(given, says):
    for parse, endpoints in (
        (SourceOptions.parse, "endpoints"),
        (SinkOptions.parse, "endpoints"),
        (ClusterDataSource, "endpoints"),
        (ClusterDataSource, "endpoints.eu"),
    ):
        with pytest.raises(ConfigurationError, match=f"option '{given}', one of Kafka's; {says}"):
            parse({endpoints: "0=a:1", given: "1"})


def test_a_decode_whose_column_is_not_asked_for_is_told():
    def told(**options):
        given = {"endpoints": "0=a:1", "decode": "dtype:i8,i8", **options}
        return list(remarks(given, [SourceOptions.parse(given)], is_stream=True))

    assert told(columns="position,payload") == [
        "option decode does nothing, for option columns is position,payload, without decoded"
    ]
    assert told(columns="position,decoded") == told() == []
