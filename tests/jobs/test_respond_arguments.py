"""The job that answers: its function, and the cluster that it answers to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cluster.errors import ConfigurationError
from jobs import respond


@pytest.mark.parametrize(
    ("source", "to", "expected"),
    [
        ({"endpoints": "0=a:9000", "maxPartitions": "2"}, None, {"endpoints": "0=a:9000"}),
        ({"endpoints": "0=a:9000"}, "0=b:9000", {"endpoints": "0=b:9000"}),
        (
            {"consensusEndpoints": "a:9003", "aeronDir": "/d", "clusterId": "7"},
            None,
            {"consensusEndpoints": "a:9003", "aeronDir": "/d"},
        ),
    ],
)
def test_respond_answers_to_the_cluster_that_it_reads_unless_another_is_named(source, to, expected):
    assert respond.cluster_of(SimpleNamespace(source=source, arguments=SimpleNamespace(to=to))) == expected


def test_respond_to_nobody_is_refused():
    with pytest.raises(ConfigurationError, match="nobody to answer to"):
        respond.cluster_of(SimpleNamespace(source={"clusterDir": "m"}, arguments=SimpleNamespace(to=None)))


def test_respond_names_what_is_wrong_with_its_function():
    for name, said in [
        ("math", "expected module:function"),
        ("no_such_module:f", "No module named"),
        ("math:no_such_function", "no such function"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            respond.transform_named(name)
    with pytest.raises(ConfigurationError, match="expected a DataFrame with a payload column"):
        respond.answers(lambda entries: 7, None, "m:f")
