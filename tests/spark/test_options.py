"""What the options of the ``cluster`` format accept, and what they say when they do not."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from cluster.errors import ConfigurationError
from cluster.transport.tls import TlsFiles
from spark_connector.address_space import check_address_space
from spark_connector.data_source import ClusterDataSource
from spark_connector.log import open_reader
from spark_connector.offsets import Offset
from spark_connector.options.cluster_options import ENTRY_TYPES, SinkOptions, SourceOptions, check_names
from spark_connector.options.directory_options import ReplayOptions, SnapshotOptions
from spark_connector.options.places import EARLIEST, LATEST, Instant, TermBegin
from spark_connector.planning import PlanLimits
from spark_connector.sink.sending import open_session


def source(**options):
    return SourceOptions.parse({"clusterDir": "/members/0", **options})


def refusal(parse, options):
    with pytest.raises(ConfigurationError) as refused:
        parse(options)
    return str(refused.value)


@pytest.mark.conformance("P-13")
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
        ('{"term": 0}', TermBegin(0)),
    ],
)
def test_starting_offsets_are_words_a_position_a_term_or_an_offset(text, meaning):
    assert source(startingOffsets=text).starting_offsets == meaning


@pytest.mark.parametrize(
    "text, epoch_us",
    [
        ("1800000000000", 1_800_000_000_000_000),
        ("0", 0),
        ("2027-01-15T08:00:00Z", 1_800_000_000_000_000),
        (" 2027-01-15 10:00:00.000001+02:00", 1_800_000_000_000_001),
    ],
)
def test_a_time_is_milliseconds_or_a_text_with_its_zone(text, epoch_us):
    assert source(startingTimestamp=text).starting_timestamp == Instant(epoch_us, text.strip())


@pytest.mark.conformance("P-11")
def test_a_time_goes_before_an_offset():
    options = source(startingTimestamp="77", startingOffsets='{"position": 96}', endingOffsets='{"term": 3}')

    assert options.start(LATEST) == ("startingTimestamp", Instant(77_000, "77"))
    assert options.end() == ("endingOffsets", TermBegin(3))
    assert source().start(LATEST) == ("startingOffsets", LATEST)
    assert source().end() is None
    assert source(endingTimestamp="78", endingOffsets="latest").end() == (
        "endingTimestamp",
        Instant(78_000, "78"),
    )


@pytest.mark.parametrize(
    "text, size", [("1", 1), ("64k", 64 << 10), ("16 m", 16 << 20), ("1G", 1 << 30), ("2mb", 2 << 20)]
)
def test_sizes_may_carry_a_unit(text, size):
    assert source(maxBytesPerTrigger=text).max_bytes_per_trigger == size


@pytest.mark.parametrize(
    "text, milliseconds",
    [("250", 250), ("250ms", 250), ("30 s", 30_000), ("15M", 900_000), ("2h", 7_200_000)],
)
def test_times_may_carry_a_unit(text, milliseconds):
    assert source(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


def test_sessions_and_templates_are_lists_of_numbers():
    options = source(sessions="7, -9223372036854775808,7", templateIds="600")

    assert (options.sessions, options.template_ids) == ((-(1 << 63), 7), (600,))


def test_members_are_asked_as_the_options_say(monkeypatch):
    asked = []
    monkeypatch.setattr("spark_connector.log._readers", {})
    monkeypatch.setattr("cluster.reader.LogReader.open", lambda **given: asked.append(given) or Quiet())
    for given in ({}, {"readPreference": "Leader", "requestTimeoutMs": "250"}, {"readPreference": "2"}):
        options = SourceOptions.parse({"endpoints": "0=a:9000", **given})
        assert open_reader(options) is open_reader(options)

    asked = [{k: v for k, v in given.items() if k in ("read_preference", "timeout_s")} for given in asked]
    assert asked == [{}, {"read_preference": "leader", "timeout_s": 0.25}, {"read_preference": 2}]


@pytest.mark.parametrize("variable", ["CLUSTER_TLS_CA", "CLUSTER_TOKEN_FILE"])
def test_without_options_the_environment_of_the_process_names_the_files(monkeypatch, variable):
    monkeypatch.setenv(variable, "/no/such/file")
    with pytest.raises(ConfigurationError, match="/no/such/file"):
        open_reader(SourceOptions.parse({"endpoints": "0=tcp:127.0.0.1:1"}))


class Quiet:
    warnings = ()


def test_entry_types_are_a_list_without_order_or_case():
    assert source(entryTypes="timer, session_open,TIMER").entry_types == ("SESSION_OPEN", "TIMER")


@pytest.mark.conformance("P-16")
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
        ("startingOffsets", '{"term": -1}'),
        ("startingOffsets", '{"term": true}'),
        ("endingOffsets", '{"term": 1, "position": 0}'),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "-1"),
        ("startingTimestamp", "2026-11-22T09:30:00"),
        ("endingTimestamp", "2026-11-22"),
        ("endingTimestamp", "1e12"),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("endingOffsets", '{"position": 1, "cluster": 7}'),
        ("endingOffsets", "[1]"),
        ("endingOffsets", "earliest"),
        ("maxEntriesPerTrigger", "0"),
        ("maxEntriesPerTrigger", "many"),
        ("maxBytesPerTrigger", "1.5m"),
        ("maxBytesPerTrigger", "-1"),
        ("minEntriesPerTrigger", "0"),
        ("maxTriggerDelay", "soon"),
        ("maxTriggerDelay", "1.5s"),
        ("failOnDataLoss", "no"),
        ("readPreference", "nearest"),
        ("requestTimeoutMs", "5s"),
        ("requestTimeoutMs", "2147483648"),  # a socket takes no such time
        ("requestTimeoutMs", "0"),
        ("minPartitions", "-4"),
        ("rowsPerBatch", "1e4"),
        ("readUncommitted", "yes"),
        ("entryTypes", "TIMERS"),
        ("entryTypes", ""),
        ("sessions", "1,,2"),
        ("sessions", "9223372036854775808"),
        ("sessions", "one"),
        ("templateIds", "65536"),
        ("templateIds", "-1"),
        ("clusterDir", " "),
        ("clusterDir", "/m,"),
        ("clusterDir", "/m, /m"),
    ],
)
def test_a_wrong_value_is_named_with_its_option_and_what_was_expected(name, value):
    refused = refusal(SourceOptions.parse, {"clusterDir": "/members/0", name: value})

    assert refused.startswith(f"option {name} is {value!r}; expected ")


@pytest.mark.parametrize("value", ["group", "earliest", '{"position": -2}', "soon"])
def test_an_end_that_cannot_be_is_refused_with_what_an_end_can_be(value):
    said = refusal(SourceOptions.parse, {"clusterDir": "/members/0", "endingOffsets": value})

    expected = 'latest, {"position": n}, {"term": n} or an offset of a checkpoint'
    assert said == f"option endingOffsets is {value!r}; expected {expected}"


def test_a_damaged_offset_is_refused_with_its_option():
    said = refusal(source_of, {"startingOffsets": '{"v": 3, "position": 1}'})

    assert said.startswith("option startingOffsets: the checkpoint's offset {'v': 3")


@pytest.mark.conformance("P-50")
def test_the_largest_numbers_do_not_overflow():
    for option, field in (
        ("maxEntriesPerTrigger", "max_entries_per_trigger"),
        ("maxBytesPerTrigger", "max_bytes_per_trigger"),
    ):
        assert getattr(source(**{option: str(2**63 - 1)}), field) == 2**63 - 1
        for value in (str(2**63), "9" * 20):
            assert refusal(source_of, {option: value}).startswith(f"option {option} is {value!r}; expected ")
    assert "option maxBytesPerTrigger" in refusal(source_of, {"maxBytesPerTrigger": "999999999999999t"})


def source_of(options):
    return source(**options)


def test_an_unknown_option_is_refused_with_the_names_near_it():
    assert refusal(source_of, {"maxEntryPerTrigger": "1"}) == (
        "unknown source option 'maxEntryPerTrigger'; did you mean maxEntriesPerTrigger, "
        "minEntriesPerTrigger, maxBytesPerTrigger?"
    )


@pytest.mark.parametrize(
    "options, given, says",
    [
        (SinkOptions, "minPartitions", "option minPartitions is for a read, and this is a write"),
        (SinkOptions, "startingoffsets", "option startingOffsets is for a read, and this is a write"),
        (SourceOptions, "TXNAPPID", "option txnAppId is for a write, and this is a read"),
        (
            SourceOptions,
            "checkpointLocation",
            "option checkpointLocation is for the query that writes, df.writeStream, and this is a read",
        ),
    ],
)
def test_an_option_of_the_other_side_is_refused_with_where_it_belongs(options, given, says):
    assert refusal(options.parse, {"endpoints": "0=a:9000", given: "1"}) == says


def test_an_unknown_option_like_no_other_is_refused_with_all_names():
    refused = refusal(source_of, {"zzz": "1"})

    assert all(name in refused for name in SourceOptions.names())


@pytest.mark.parametrize("options", [SourceOptions, SnapshotOptions, ReplayOptions])
def test_a_time_for_an_answer_is_no_more_than_sockets_take(options):
    given = {"endpoints": "0=a:9000", "service": "a:B"} if options is ReplayOptions else {"endpoints": "a:1"}
    assert options.parse({**given, "requestTimeoutMs": "2147483647"}).request_timeout_ms == 2**31 - 1
    refused = refusal(options.parse, {**given, "requestTimeoutMs": "2147483648"})
    assert refused.startswith("option requestTimeoutMs is '2147483648'; expected milliseconds")


@pytest.mark.parametrize("options", [SourceOptions, SnapshotOptions, ReplayOptions])
def test_a_name_of_a_cluster_where_there_is_one_is_answered_with_the_option_alone(options):
    said = refusal(options.parse, {"ENDPOINTS.eu": "0=a:9000"})

    assert said == (
        f"{options.KIND} option 'ENDPOINTS.eu' names one of several clusters, and here is one; expected "
        "endpoints without a name, and a run for each cluster"
    )


def test_a_path_is_answered_with_the_option_to_use():
    assert "clusterDir" in refusal(source_of, {"path": "/members/0"})
    assert "endpoints" in refusal(SinkOptions.parse, {"endpoints": "a:1", "path": "/members/0"})
    assert "takes no path" in refusal(check_names, ["path"])


def test_endpoints_are_refused_to_a_process_without_the_address_space_for_them(monkeypatch):
    """Spark limits it by a setting; gRPC then waits for a thread that cannot start."""
    source = SourceOptions.parse({"endpoints": "a:1"})
    sink = SinkOptions.parse({"endpoints": "a:1"})
    monkeypatch.setattr("resource.getrlimit", lambda what: (1 << 30, 1 << 30))
    for opened in (lambda: open_reader(source), lambda: open_session(sink, None)):
        with pytest.raises(ConfigurationError, match=r"may have 1024 MiB .* spark.executor.pyspark.memory"):
            opened()
    for allowed in (2 << 30, -1):
        monkeypatch.setattr("resource.getrlimit", lambda what, allowed=allowed: (allowed, allowed))
        check_address_space()


def test_what_spark_asks_without_options_is_answered_as_a_table():
    """A table's options are not handed over, so a read or a write of one has none."""
    source, schema = ClusterDataSource({}), StructType().add("payload", "string")
    for asked in (source.reader, lambda schema: source.writer(schema, overwrite=False)):
        with pytest.raises(ConfigurationError, match=r"no option is given.*CREATE TEMPORARY VIEW"):
            asked(schema)


@pytest.mark.conformance("P-17")
@pytest.mark.parametrize(
    "options, says",
    [
        ({}, "endpoints, clusterDir, consensusEndpoints and aeronArchive; none is given"),
        ({"endpoints": "0=a:9000", "clusterDir": "/members/0"}, "both are given"),
        ({"endpoints": "0=a:9000", "archiveDir": "/archive"}, "archiveDir goes with clusterDir"),
        (
            {"clusterDir": "/m", "readPreference": "any"},
            "readPreference goes with endpoints or consensusEndpoints, which is not given",
        ),
        ({"clusterDir": "/m", "requestTimeoutMs": "9"}, "requestTimeoutMs goes with endpoints"),
        (
            {"clusterDir": "/m,/n", "archiveDir": "/a"},
            "archiveDir is /a; expected one for each of clusterDir",
        ),
        ({"clusterDir": "/m", "minPartitions": "9", "maxPartitions": "8"}, "minPartitions is 9"),
        (
            {"clusterDir": "/m", "minEntriesPerTrigger": "9", "maxEntriesPerTrigger": "8"},
            "option minEntriesPerTrigger is 9, more than maxEntriesPerTrigger, which is 8",
        ),
        ({"endpoints": "a:1", "user": "u"}, "option user goes with passwordFile, which is not given"),
        (
            {"endpoints": "a:1", "user": "u", "passwordFile": "p", "authTokenFile": "t"},
            "option authTokenFile is given, and user with passwordFile: give one",
        ),
        ({"endpoints": "a:1", "consumerGroup": " "}, "option consumerGroup is ' '; expected a text of 1 to"),
        ({"endpoints": "a:1", "columns": "position,size"}, "option columns is position,size: the log has no"),
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
        ("a", "option endpoints is 'a': endpoint 'a': expected host:port"),
    ],
)
def test_endpoints_that_cannot_be_meant_are_refused_before_anybody_is_dialled(kind, endpoints, says):
    assert says in refusal(kind.parse, {"endpoints": endpoints})


@pytest.mark.parametrize(
    "options, column, says",
    [
        ({"endingOffsets": "latest"}, "position", "endingOffsets is for a batch"),
        ({"endingTimestamp": "0"}, "position", "endingTimestamp is for a batch"),
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


@pytest.mark.parametrize("cluster", ["", ".eu"])
def test_a_batch_says_which_options_do_nothing_in_it(cluster, capsys):
    def told(**options):
        given = {f"endpoints{cluster}": "0=a:1", f"consumerGroup{cluster}": "g", **options}
        ClusterDataSource(given).reader(StructType().add("position", "long"))
        return capsys.readouterr().err.splitlines()

    limits = {"maxentriespertrigger": "7", "maxBytesPerTrigger": "1m", "minEntriesPerTrigger": "1"}
    names = ["maxEntriesPerTrigger", "maxBytesPerTrigger", "minEntriesPerTrigger", "maxTriggerDelay"]
    assert told(**limits, maxTriggerDelay="1s") == [
        f"cluster source: option {name} does nothing in a batch read; it is for a stream"
        for name in [*names, "consumerGroup"]
    ]
    assert told(startingOffsets="group", minPartitions="3") == [], "the group says where it begins"


@pytest.mark.parametrize("cluster", ["", ".eu"])
def test_a_batch_write_says_which_options_do_nothing_in_it(cluster, capsys):
    def told(**options):
        given = {f"endpoints{cluster}": "0=a:1", **options} | ({"routeBy": "payload"} if cluster else {})
        ClusterDataSource(given).writer(StructType().add("payload", "string"), overwrite=False)
        return [line.removeprefix("cluster sink: option ") for line in capsys.readouterr().err.splitlines()]

    for given in ({"checkpointlocation": "c", "QUERYNAME": "q"}, {"asyncProgressTrackingEnabled": "true"}):
        lines = told(**given)
        assert [line.partition(" ")[0].lower() for line in lines] == [name.lower() for name in given]
        assert all(" does nothing in a batch write; it is for a stream. txnAppId " in line for line in lines)
        known = [line.partition(". ")[0] for line in lines]
        assert told(**given, txnAppId="a", txnVersion="1") == known
    (line,) = told(checkOrder="true")
    assert line.startswith("checkOrder does nothing without txnAppId, which is not given: ")
    assert told(checkOrder="false") == told(checkOrder="true", txnAppId="a", txnVersion="1") == []


@pytest.mark.parametrize("cluster", ["", ".eu"])
def test_an_option_that_does_nothing_without_another_is_told(cluster, capsys):
    def of_stream(**options):
        given = {f"endpoints{cluster}": "0=a:1", **options}
        reader = ClusterDataSource(given).streamReader(StructType().add("position", "long"))
        readers = reader._readers.values() if cluster else [reader]
        return [line for one in readers for line in one.remarks]

    def of_batch(**options):
        given = {f"endpoints{cluster}": "0=a:1", **options}
        ClusterDataSource(given).reader(StructType().add("position", "long"))
        return [line.removeprefix("cluster source: ") for line in capsys.readouterr().err.splitlines()]

    for name, value, needed, other in (
        ("decodeMode", "FAILFAST", "decode", "json:id BIGINT"),
        ("startingOffsetsByTimestampStrategy", "latest", "startingTimestamp", "0"),
        ("maxTriggerDelay", "1s", "minEntriesPerTrigger", "3"),
    ):
        alone = [f"option {name} does nothing without {needed}, which is not given"]
        assert of_stream(**{name: value}) == alone
        assert of_stream(**{name: value, needed: other}) == []
        if name != "maxTriggerDelay":
            assert of_batch(**{name.upper(): value}) == alone
            assert of_batch(**{name: value, needed: other}) == []
    anybody_s = "endpoints, consensusEndpoints, aeronArchive"
    ways_in = (
        ({"tlsCaFile": "ca", "authTokenFile": "t"}, ("endpoints", anybody_s)),
        ({"user": "u", "passwordFile": "p"}, (anybody_s, "")),
    )
    for given, ways in ways_in:
        source = ClusterDataSource({f"clusterDir{cluster}": "/members/0", **given})
        source.reader(StructType().add("position", "long"))
        assert capsys.readouterr().err.splitlines() == [
            f"cluster source: option {name} does nothing without {endpoints}, which is not given"
            for name, endpoints in zip(given, ways)
            if name != "passwordFile"
        ]
        assert of_batch(**given) == []
    assert of_stream(readUncommitted="true")[0].startswith(
        "option readUncommitted does nothing without clust"
    )
    assert of_stream(readUncommitted="false") == of_batch(readUncommitted="false") == []
    assert of_batch(readUncommitted="true") == [
        "option readUncommitted does nothing in a batch read; it is for a stream"
    ]
    (line,) = of_stream(pushFilters="true")
    assert line.startswith(
        "option pushFilters does nothing in a stream, for Spark pushes no filters into one; "
    )
    assert of_stream(pushFilters="false") == of_batch(pushFilters="true") == []


def test_the_sink_needs_endpoints_and_takes_what_spark_adds():
    assert "endpoints" in refusal(SinkOptions.parse, {"checkpointLocation": "/c"})
    assert SinkOptions.parse(
        {"endpoints": "0=a:9000", "checkpointlocation": "/c", "queryname": "q"}
    ) == SinkOptions(endpoints="0=a:9000", commit_timeout_ms=60_000)


def test_a_table_of_the_catalog_is_refused_with_what_to_make_instead():
    with pytest.raises(ConfigurationError, match=r"no tables of format cluster: .*CREATE TEMPORARY VIEW"):
        check_names(["option.endpoints", "endpoints", "provider", "owner"])


def test_before_the_kind_is_known_the_names_of_both_pass():
    check_names(["endpoints", "committimeoutms", "minpartitions", "checkpointlocation"])
    with pytest.raises(ConfigurationError, match=r"unknown source or sink option 'endpoint'.*endpoints"):
        check_names(["endpoint"])


def sink(**options):
    return SinkOptions.parse({"endpoints": "0=a:9000", **options})


def test_a_sink_is_exactly_once_and_compares_unless_it_is_told_otherwise():
    assert (sink().delivery_mode, sink().check_order) == (None, True)
    given = sink(deliveryMode=" AT-LEAST-ONCE", checkOrder="false")
    assert (given.delivery_mode, given.check_order) == ("at-least-once", False)
    given = sink(deliveryMode="exactly-once", txnAppId="answers", txnVersion="0")
    assert (given.delivery_mode, given.txn_app_id, given.txn_version) == ("exactly-once", "answers", 0)


@pytest.mark.conformance("P-16", "P-17")
@pytest.mark.parametrize(
    "options, says",
    [
        ({"deliveryMode": "once"}, "option deliveryMode is 'once'; expected exactly-once or at-least-once"),
        ({"checkOrder": "no"}, "option checkOrder is 'no'; expected true or false"),
        ({"txnAppId": "a"}, "options txnAppId and txnVersion go together; txnVersion is not given"),
        ({"txnVersion": "1"}, "options txnAppId and txnVersion go together; txnAppId is not given"),
        (
            {"txnAppId": "a", "txnVersion": "-1"},
            "option txnVersion is '-1'; expected a whole number from 0 on",
        ),
        (
            {"txnAppId": "a" * 257, "txnVersion": "1"},
            f"option txnAppId is '{'a' * 257}': lane: application is of 257 bytes, expected 1 to 256",
        ),
        (
            {"txnAppId": "a", "txnVersion": "1", "deliveryMode": "at-least-once"},
            "option deliveryMode is at-least-once, txnAppId is 'a'; expected one of them",
        ),
    ],
)
def test_what_a_sink_cannot_be_is_refused(options, says):
    assert refusal(SinkOptions.parse, {"endpoints": "0=a:9000", **options}) == says


@pytest.mark.parametrize("options", [SourceOptions, SinkOptions])
def test_the_documentation_has_every_option_with_its_default_and_meaning(options):
    text = (Path(__file__).resolve().parents[2] / "docs" / "spark-reference.md").read_text()
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
    for lacking, missing in (
        ("tlsKeyFile", "option tlsCertificateFile goes with tlsKeyFile, which is not given"),
        ("tlsCaFile", "option tlsCertificateFile goes with tlsCaFile, which is not given"),
    ):
        fewer = {name: path for name, path in both.items() if name.lower() != lacking.lower()}
        with pytest.raises(ConfigurationError, match=missing):
            options.parse(fewer)


def test_a_number_that_may_be_meant_otherwise_than_in_milliseconds_is_told(capsys):
    def told(**options):
        ClusterDataSource({"endpoints": "0=a:1", **options}).reader(StructType().add("position", "long"))
        return capsys.readouterr().err.splitlines()

    assert told(startingTimestamp="1767225600") == [
        "cluster source: option startingTimestamp is 1767225600 in milliseconds, 1970-01-21T10:53:45Z; if "
        "seconds were meant, give 1767225600000 (2026-01-01T00:00:00Z)"
    ]
    (line,) = told(endingTimestamp="1767225600")
    assert "option endingTimestamp" in line
    assert told(startingTimestamp="1767225600000") == told(startingTimestamp="0") == []
    assert told(startingTimestamp="2026-01-01T00:00:00Z") == told(startingTimestamp="30260101") == []
    assert told(endingTimestamp="20260131") == [
        "cluster source: option endingTimestamp is 20260131 in milliseconds, 1970-01-01T05:37:40Z; if a date "
        "was meant, give 2026-01-31T00:00:00Z"
    ]


@pytest.mark.parametrize("to", [{"endpoints": "0=a:1"}, {"endpoints.eu": "0=a:1", "routeBy": "payload"}])
def test_progress_that_is_tracked_later_is_refused_where_each_row_is_to_be_in_the_log_once(to):
    """Spark may cut a registered micro-batch anew then, and its tasks send nothing of one."""
    schema = StructType().add("payload", "binary")
    given = {**to, "asyncProgressTrackingEnabled": "true"}
    for mode in ({}, {"deliveryMode": "exactly-once"}):
        with pytest.raises(
            ConfigurationError, match=r"asyncProgressTrackingEnabled is true, .* at-least-once"
        ):
            ClusterDataSource({**given, **mode}).streamWriter(schema, overwrite=False)
    ClusterDataSource({**given, "deliveryMode": "at-least-once"}).streamWriter(schema, overwrite=False)
    off = {**given, "asyncProgressTrackingEnabled": "false"}
    ClusterDataSource(off).streamWriter(schema, overwrite=False)


def test_a_directory_has_no_scheme():
    for text in ("file:///c1/member-0", "s3://bucket/member-0", "/c1/member-0,dbfs:/c1/member-1"):
        says = refusal(SourceOptions.parse, {"clusterDir": text})
        assert says.startswith(
            f"option clusterDir is '{text}'; expected directories on this host, without a scheme"
        )
