"""What the options of the ``cluster`` format accept, and what they say when they do not."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from cluster.errors import ConfigurationError
from cluster.transport.tls import TlsFiles
from spark_connector.data_source import ClusterDataSource
from spark_connector.offsets import Offset
from spark_connector.options import EARLIEST, ENTRY_TYPES, LATEST, SinkOptions, SourceOptions, check_names
from spark_connector.planning import PlanLimits


def source(**options):
    return SourceOptions.parse({"clusterDir": "/members/0", **options})


def refusal(parse, options):
    with pytest.raises(ConfigurationError) as refused:
        parse(options)
    return str(refused.value)


def test_names_compare_without_case_because_spark_hands_them_lower_cased():
    assert source(MAXENTRIESPERTRIGGER="7", minpartitions="3") == source(
        maxEntriesPerTrigger="7", minPartitions="3"
    )


def test_a_source_knows_every_option_and_its_default():
    assert SourceOptions.parse({"endpoints": "0=a:9000"}) == SourceOptions(
        endpoints="0=a:9000",
        starting_offsets=None,
        ending_offsets=None,
        max_entries_per_trigger=None,
        max_bytes_per_trigger=256 << 20,
        min_partitions=1,
        max_bytes_per_partition=64 << 20,
        max_partitions=200,
        entry_types=ENTRY_TYPES,
        read_uncommitted=False,
        rows_per_batch=32768,
    )


@pytest.mark.parametrize(
    "text, meaning",
    [
        ("earliest", EARLIEST),
        (" Latest ", LATEST),
        ('{"position": 96}', Offset(None, 96)),
        ('{"cluster": "0:77:5", "position": 96}', Offset("0:77:5", 96)),
        ('{"v": 2, "cluster": "0:77:5", "position": 96}', Offset("0:77:5", 96)),
        (json.dumps(Offset("0:77:5", 96, 0, PlanLimits(1, 1, 1)).to_json()), Offset("0:77:5", 96)),
        ('{"position": -2}', EARLIEST),
        ('{"position": -1}', LATEST),
    ],
)
def test_starting_offsets_are_words_a_position_or_an_offset(text, meaning):
    assert source(startingOffsets=text).starting_offsets == meaning


@pytest.mark.parametrize(
    "text, size", [("1", 1), ("64k", 64 << 10), ("16 m", 16 << 20), ("1G", 1 << 30), ("2mb", 2 << 20)]
)
def test_sizes_may_carry_a_unit(text, size):
    assert source(maxBytesPerTrigger=text).max_bytes_per_trigger == size


def test_entry_types_are_a_list_without_order_or_case():
    assert source(entryTypes="timer, session_open,TIMER").entry_types == ("SESSION_OPEN", "TIMER")


@pytest.mark.parametrize(
    "name, value",
    [
        ("startingOffsets", "yesterday"),
        ("startingOffsets", "96"),
        ("startingOffsets", '{"position": -3}'),
        ("startingOffsets", '{"position": true}'),
        ("startingOffsets", '{"position": 1e3}'),
        ("startingOffsets", '{"offset": 1}'),
        ("startingOffsets", '{"position": 1, "from": 0}'),
        ("endingOffsets", '{"position": 1, "cluster": 7}'),
        ("endingOffsets", "[1]"),
        ("endingOffsets", "earliest"),
        ("maxEntriesPerTrigger", "0"),
        ("maxEntriesPerTrigger", "many"),
        ("maxBytesPerTrigger", "1.5m"),
        ("maxBytesPerTrigger", "-1"),
        ("minPartitions", "-4"),
        ("rowsPerBatch", "1e4"),
        ("readUncommitted", "yes"),
        ("entryTypes", "TIMERS"),
        ("entryTypes", ""),
        ("clusterDir", " "),
    ],
)
def test_a_wrong_value_is_named_with_its_option_and_what_was_expected(name, value):
    refused = refusal(SourceOptions.parse, {"clusterDir": "/members/0", name: value})

    assert refused.startswith(f"option {name} is {value!r}; expected ")


def test_a_damaged_offset_is_refused_with_its_option():
    said = refusal(source_of, {"startingOffsets": '{"v": 3, "position": 1}'})

    assert said.startswith("option startingOffsets: the checkpoint's offset {'v': 3")


def test_the_largest_numbers_do_not_overflow():
    assert source(maxEntriesPerTrigger="9" * 18).max_entries_per_trigger == 10**18 - 1
    assert "option maxBytesPerTrigger" in refusal(source_of, {"maxBytesPerTrigger": "999999999999999t"})


def source_of(options):
    return source(**options)


def test_an_unknown_option_is_refused_with_the_names_near_it():
    assert refusal(source_of, {"maxEntryPerTrigger": "1"}) == (
        "unknown source option 'maxEntryPerTrigger'; did you mean maxEntriesPerTrigger, maxBytesPerTrigger?"
    )
    assert "unknown sink option 'minPartitions'" in refusal(
        SinkOptions.parse, {"endpoints": "0=a:9000", "minPartitions": "2"}
    )


def test_an_unknown_option_like_no_other_is_refused_with_all_names():
    refused = refusal(source_of, {"zzz": "1"})

    assert all(name in refused for name in SourceOptions.names())


def test_a_path_is_answered_with_the_option_to_use():
    assert "clusterDir" in refusal(source_of, {"path": "/members/0"})


@pytest.mark.parametrize(
    "options, says",
    [
        ({}, "neither is given"),
        ({"endpoints": "0=a:9000", "clusterDir": "/members/0"}, "both are given"),
        ({"endpoints": "0=a:9000", "archiveDir": "/archive"}, "archiveDir goes with clusterDir"),
        ({"clusterDir": "/m", "minPartitions": "9", "maxPartitions": "8"}, "minPartitions is 9"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, says):
    assert says in refusal(SourceOptions.parse, options)


@pytest.mark.parametrize("kind", [SourceOptions, SinkOptions])
@pytest.mark.parametrize(
    "endpoints, says",
    [
        ("0=a:9000,b:9000", "'b:9000' is not memberId=endpoint"),
        ("0=localhost", "endpoint 'localhost': expected host:port"),
        ("0=a:9000,0=b:9000", "member 0 is given twice"),
        (" ", "option endpoints is ' '"),
    ],
)
def test_endpoints_that_cannot_be_meant_are_refused_before_anybody_is_dialled(kind, endpoints, says):
    assert says in refusal(kind.parse, {"endpoints": endpoints})


@pytest.mark.parametrize(
    "options, column, says",
    [
        ({"endingOffsets": "latest"}, "position", "endingOffsets is for a batch"),
        ({"minPartitions": "0"}, "position", "option minPartitions is '0'"),
        ({}, "payloads", "did you mean payload"),
    ],
)
@pytest.mark.parametrize("question", [("initialOffset",), ("latestOffset", {}, None), ("partitions", {}, {})])
def test_a_stream_that_cannot_be_says_so_when_it_is_first_asked(options, column, says, question):
    """PySpark would tell of a variable of its own if streamReader itself raised."""
    source = ClusterDataSource({"clusterDir": "/members/0", **options})
    reader = source.streamReader(StructType().add(column, "long"))

    method, *arguments = question
    with pytest.raises(ConfigurationError, match=says):
        getattr(reader, method)(*arguments)


def test_the_sink_needs_endpoints_and_takes_what_spark_adds():
    assert "endpoints" in refusal(SinkOptions.parse, {"checkpointLocation": "/c"})
    assert SinkOptions.parse(
        {"endpoints": "0=a:9000", "checkpointlocation": "/c", "path": "/p", "queryname": "q"}
    ) == SinkOptions(endpoints="0=a:9000", commit_timeout_ms=60_000)


def test_a_table_of_the_catalog_is_refused_with_what_to_make_instead():
    with pytest.raises(ConfigurationError, match=r"no tables of format cluster: .*CREATE TEMPORARY VIEW"):
        check_names(["option.endpoints", "endpoints", "provider", "owner"])


def test_before_the_kind_is_known_the_names_of_both_pass():
    check_names(["endpoints", "committimeoutms", "minpartitions", "checkpointlocation"])
    with pytest.raises(ConfigurationError, match=r"unknown source or sink option 'endpoint'.*endpoints"):
        check_names(["endpoint"])


@pytest.mark.parametrize("options", [SourceOptions, SinkOptions])
def test_the_documentation_has_every_option_with_its_default_and_meaning(options):
    text = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()
    table = ["| option | default | meaning |", "|---|---|---|"]
    for option in fields(options):
        metadata = option.metadata
        table.append(f"| `{metadata['name']}` | {metadata['shown'] or '–'} | {metadata['meaning']} |")

    assert "\n".join(table) in text


@pytest.mark.parametrize("options", [SourceOptions, SinkOptions])
def test_files_for_tls_are_paths_and_nothing_is_read_when_they_are_given(options):
    given = {"endpoints": "tcp:a:1", "tlsCaFile": "/no/ca.pem"}
    assert options.parse(given).tls == TlsFiles("/no/ca.pem")
    both = {**given, "tlscertificatefile": "/no/a.pem", "TLSKEYFILE": "/no/a.key"}
    assert options.parse(both).tls == TlsFiles("/no/ca.pem", "/no/a.pem", "/no/a.key")
    assert options.parse({"endpoints": "tcp:a:1"}).tls is None
    for lacking, missing in (("tlsKeyFile", "without key"), ("tlsCaFile", "no file of authorities")):
        fewer = {name: path for name, path in both.items() if name.lower() != lacking.lower()}
        with pytest.raises(ConfigurationError, match=missing):
            options.parse(fewer)
