"""One configuration, from three places, that says clearly what it does not like."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from cluster.consensus.context import ConsensusModuleContext
from cluster.errors import ConfigurationError
from cluster.node import config, config_text
from cluster.node.config_keys import KEYS
from cluster.node.ports import LifeSettings
from cluster.protocol.enums import ClusterTimeUnit
from cluster.protocol.mark_file import CLUSTER_MARK_FILE_NAME
from cluster.protocol.streams import CONSENSUS
from cluster.transport.bounds import Bounds
from cluster.transport.server import BYTES_PER_POLL_MAX, UNREAD_BYTES_MAX
from cluster.transport.tls import TlsFiles
from tests.node.config_files import check_says_all

CONF = Path(__file__).resolve().parents[2] / "conf"


def load_text(tmp_path: Path, text: str, **environment: str) -> config.NodeConfig:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return config_text.load(path, environment=environment)


def refusal(tmp_path: Path, text: str, **environment: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_text(tmp_path, text, **environment)
    assert caught.value.exit_status == 2
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(tmp_path), "DIR")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("election_timeout = nan", "election_timeout = nan: expected a duration"),
        ("log_mtu = 1180591620717411303424", "log_mtu = 1180591620717411303424: "),
        ("log_mtu = 1e999", "log_mtu = inf: "),
        ("max_sessions = 1\nmax_sessions = 2", "not TOML: "),
        ("log_mtu =\t\t4096\x00", "not TOML: "),
        ("x = " + "[" * 100_000, "nested too deep"),
        ("[log_mtu]\nvalue = 1", "log_mtu = "),
        ("services = " + str(["echo"] * 11), "services = "),
        ("dir = 7", "dir = 7: "),
    ],
    ids=lambda text: text[:40],
)
def test_what_toml_may_say_and_no_key_means_is_refused_in_one_line(tmp_path, text, told):
    assert refusal(tmp_path, text).startswith("DIR/node.toml: " + told)


def test_a_byte_order_mark_and_ten_megabytes_of_remarks_are_named_or_read(tmp_path):
    path = tmp_path / "node.toml"
    path.write_bytes(b"\xef\xbb\xbflog_mtu = 4096\n")
    with pytest.raises(ConfigurationError, match="not TOML"):
        config_text.load(path, environment={})
    path.write_text(("# a remark of some length\n" * 400_000) + "log_mtu = 4096\n")
    assert config_text.load(path, environment={}).log_mtu == 4096


def test_node_toml_says_of_every_key_what_it_is_for_and_its_default():
    check_says_all("node.toml", config.NodeConfig)


def test_node_toml_names_every_key_at_its_default():
    values = tomllib.loads((CONF / "node.toml").read_text())
    assert tuple(values) == KEYS
    assert config_text.load(CONF / "node.toml", environment={}) == config_text.load(environment={})


@pytest.mark.parametrize("member_id", [0, 1, 2])
def test_the_example_members_make_one_cluster(member_id):
    member = config_text.load(CONF / f"member-{member_id}.toml", environment={})
    first = config_text.load(CONF / "member-0.toml", environment={})
    assert member.member_id == member_id
    assert member.cluster_members == first.cluster_members
    assert [m.member_id for m in member.cluster_members] == [0, 1, 2]
    assert member.member.ingress_endpoint == f"127.0.0.1:90{member_id}0"


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ('"7ns"', 7),
        ('"50us"', 50_000),
        ('"200ms"', 200_000_000),
        ('"10s"', 10_000_000_000),
        ("1000000", 1_000_000),
    ],
)
def test_durations_have_suffixes_and_are_kept_in_nanoseconds(tmp_path, text, ns):
    assert load_text(tmp_path, f"election_timeout = {text}").election_timeout_ns == ns


@pytest.mark.parametrize("text", ["10", "'10'", "999_999"])
def test_a_small_number_of_nanoseconds_needs_its_unit_for_another_one_is_meant(tmp_path, text):
    with pytest.raises(ConfigurationError, match=r'expected a unit, as in "[0-9]+s" or "[0-9]+ns"'):
        load_text(tmp_path, f"session_timeout = {text}")


@pytest.mark.parametrize(
    ("text", "length"), [('"128k"', 131_072), ('"64m"', 1 << 26), ('"2M"', 1 << 21), ("65536", 65_536)]
)
def test_sizes_have_suffixes_and_are_kept_in_bytes(tmp_path, text, length):
    assert (
        load_text(
            tmp_path, f"archive_segment_file_length = {text}\nlog_term_length = 65536"
        ).archive_segment_file_length
        == length
    )


def test_the_environment_wins_over_the_file_and_an_option_over_both(tmp_path):
    path = tmp_path / "node.toml"
    path.write_text("max_sessions = 5\nsession_timeout = '1s'\nmember_id = 0\n")
    environment = {
        "CLUSTER_MAX_SESSIONS": "6",
        "CLUSTER_SERVICES": "echo, a:B",
        "CLUSTER_IPC_INGRESS": "false",
    }
    loaded = config_text.load(path, environment=environment, overrides={"log_level": "debug"})

    assert loaded.max_sessions == 6
    assert loaded.session_timeout_ns == 1_000_000_000
    assert loaded.services == ["echo", "a:B"]
    assert loaded.ipc_ingress is False
    assert loaded.log_level == "debug"


def test_members_may_be_one_string_as_in_aeron(tmp_path):
    both = [
        load_text(tmp_path, 'members = "0,a:1,a:2,a:3,a:4,a:5|1,b:1,b:2,b:3,b:4,b:5"'),
        load_text(tmp_path, 'members = ["0,a:1,a:2,a:3,a:4,a:5", "1,b:1,b:2,b:3,b:4,b:5"]'),
    ]
    assert both[0].cluster_members == both[1].cluster_members
    assert both[0].cluster_members[1].ingress_endpoint == "b:1"


def test_the_members_directory_holds_the_three_that_are_not_set(tmp_path):
    loaded = load_text(tmp_path, 'dir = "/data/m"\narchive_dir = "/fast/archive"')
    assert str(loaded.path) == "/data/m"
    assert str(loaded.cluster_path) == "/data/m/cluster"
    assert str(loaded.archive_path) == "/fast/archive"
    assert str(loaded.ipc_path) == "/data/m/driver/ingress.sock"


def test_members_can_share_one_file(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('members = "0,a:9000,a:1,a:1,a:1,a:1|1,b:9000,b:1,b:1,b:1,b:1"')
    first, second = (
        config_text.load(path, environment={}, overrides={"member_id": member_id}) for member_id in (0, 1)
    )
    assert (str(first.path), str(second.path)) == ("member-0", "member-1")
    assert [second.tcp_ingress_of(member) for member in second.cluster_members] == ["a:9001", "b:9001"]


def test_an_unknown_key_is_refused_with_the_names_near_to_it(tmp_path):
    assert refusal(tmp_path, "max_sesions = 3") == (
        'DIR/node.toml: unknown key "max_sesions"; did you mean max_sessions?'
    )
    assert refusal(tmp_path, "zzz = 1") == 'DIR/node.toml: unknown key "zzz"'


def test_every_wrong_key_is_named_in_the_one_line(tmp_path):
    message = refusal(tmp_path, "max_sessions = 0\nmax_session = 3")
    assert "max_sessions = 0: expected greater than or equal to 1" in message
    assert 'unknown key "max_session"; did you mean max_sessions' in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'session_timeout = "10 parsecs"',
            'session_timeout = "10 parsecs": expected a duration such as "10s"',
        ),
        ("session_timeout = 0", "session_timeout = 0: expected greater than 0"),
        ("session_timeout = true", "session_timeout = true: expected a duration"),
        ('log_term_length = "65m"', "log_term_length: expected a power of two"),
        ('log_term_length = "lots"', 'log_term_length = "lots": expected a size in bytes such as "64m"'),
        (
            'log_term_length = "512m"',
            "archive_segment_file_length: expected at least log_term_length = 536870912",
        ),
        ("log_mtu = 1409", "log_mtu: expected a multiple of 32"),
        ("file_sync_level = 3", "file_sync_level = 3: expected less than or equal to 2"),
        ("file_sync_level = 'x'", 'file_sync_level = "x": expected a valid integer'),
        ("cluster_clock = 'min'", "cluster_clock = \"min\": expected 'ms', 'us' or 'ns'"),
        ("app_version = '1.2'", 'app_version = "1.2": expected a version such as "0.0.1"'),
        ("member_id = 7", "member_id = 7: expected one of members: 0"),
        ("members = ['0,a:1']", "cluster member"),
        ("services = []", "services = []: "),
        ("startup_canvass_timeout = '15s'", "startup_canvass_timeout: expected at least twice"),
        ("leader_heartbeat_interval = '20s'", "leader_heartbeat_interval: expected less than"),
        (f"max_sessions = {2**70}", f"max_sessions = {2**70}: expected less than or equal to 1000000"),
        (f"session_timeout = {2**70}", f"session_timeout = {2**70}: expected a duration of at most"),
        (f"session_timeout = '{2**60}s'", "expected a duration of at most 2^62 ns"),
        (f"log_term_length = {2**70}", "expected less than or equal to"),
        ("x = " + "[" * 5000 + "]" * 5000, "DIR/node.toml: nested too deep"),
        ("a" + ".a" * 5000 + " = 1", "DIR/node.toml: "),
        ("max_sessions = " + "9" * 5000, "DIR/node.toml: not TOML: "),
        ("session_timeout = '" + "9" * 5000 + "s'", "expected a duration such as"),
        ("log_term_length = '" + "9" * 5000 + "'", "expected a size in bytes such as"),
        ("members = ['0,a:0,a:1,a:1,a:1,a:1']", "endpoint 'a:0': expected a port from 1 to 65535"),
        ("members = ['0,a:9000,a:0,a:1,a:1,a:1']", "endpoint 'a:0': expected a port from 1 to 65535"),
        ("tcp_ingress = '127.0.0.1:0'", "endpoint '127.0.0.1:0': expected a port from 1 to 65535"),
        ("ingress_channel = 'aeron:udp?endpoint=a:0'", "endpoint 'a:0': expected a port from 1 to 65535"),
        ("ingress_channel = 'aeron:ipc'", "ingress_channel: expected none, or a channel such as aeron:udp"),
        ("consensus_channel = 'aeron:ipc'", "consensus_channel: expected none, or a channel such as"),
        ("archive_control_channel = 'aeron:ipc'", "archive_control_channel: expected none, or a channel"),
        ("archive_control_channel = 'aeron:udp?endpoint=a:0'", "endpoint 'a:0': expected a port from 1 to"),
        (
            "archive_control_channel = 'aeron:udp'\nmembers = ['0,a:1,a:2,a:3,a:4,a:0']",
            "endpoint 'a:0': expected a port from 1 to 65535",
        ),
        (
            "consensus_channel = 'aeron:udp'\nmembers = ['0,a:1,a:2,a:3,a:0,a:5']",
            "endpoint 'a:0': expected a port from 1 to 65535",
        ),
        (
            "consensus_channel = 'aeron:udp'\nmembers = ['0,a:1,a:2,a:3,a:4,a:5']",
            "consensus_channel: expected none for a member alone: it would lead",
        ),
        *(
            (
                "leads_java_members = true\nmembers = ['0,a:1,a:2,a:3,a:4,a:5', '1,b:1,b:2,b:3,b:4,b:5']\n"
                + "\n".join(f"{key}_channel = 'aeron:udp'" for key in keys),
                "leads_java_members: expected false without consensus_channel, archive_control_channel and",
            )
            for keys in (
                ("ingress", "archive_control"),
                ("consensus", "ingress"),
                ("consensus", "archive_control"),
            )
        ),
        ("max_sessions = ", "DIR/node.toml: not TOML: "),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(tmp_path, text, expected):
    message = refusal(tmp_path, text)
    assert message.startswith("DIR/node.toml: ")
    assert expected in message


def test_a_wrong_variable_of_the_environment_is_named_as_such(tmp_path):
    assert refusal(tmp_path, "", CLUSTER_MAX_SESSIONS="many").startswith(
        'environment variable CLUSTER_MAX_SESSIONS: max_sessions = "many": expected a valid integer'
    )


def test_a_variable_that_only_looks_like_ours_is_told_but_no_error(tmp_path):
    load_text(tmp_path, "", CLUSTER_MAX_SESION="1")
    known = {"PATH": "", "CLUSTER_DIR": "x", "CLUSTER_ENDPOINTS": "localhost:9000"}
    assert config_text.unknown_variables({"CLUSTER_MAX_SESION": "1", **known}) == [
        "unknown environment variable CLUSTER_MAX_SESION; did you mean max_sessions?"
    ]


def test_where_commands_look_moves_no_members_directory(tmp_path):
    loaded = load_text(tmp_path, 'dir = "here"', CLUSTER_DIR="cluster-data")
    assert loaded.dir == "here"


def test_the_file_of_a_directory_that_was_moved_is_told(tmp_path):
    before, now = tmp_path / "c1", tmp_path / "c2"
    before.mkdir()
    loaded = load_text(before, f'dir = "{before}"')
    (before / "cluster").mkdir()
    (before / "cluster" / CLUSTER_MARK_FILE_NAME).touch()
    assert config_text.noted_if_moved(before / "node.toml", loaded) is None
    before.rename(now)
    said = f"{now}/node.toml: dir is {before}, which is used, and not {now}; give --dir {now} for that one"
    assert config_text.noted_if_moved(now / "node.toml", loaded) == said
    given = config_text.load(now / "node.toml", overrides={"dir": str(now)}, environment={})
    assert config_text.noted_if_moved(now / "node.toml", given) is None
    (tmp_path / "node.toml").write_text(f'dir = "{now}"')
    assert config_text.noted_if_moved(tmp_path / "node.toml", given) is None


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml: no such file"):
        config_text.load(tmp_path / "nowhere.toml", environment={})


# The keys that none of these takes by name, by the module that reads them.
TAKEN_BY_NAME = (ConsensusModuleContext, Bounds, LifeSettings)
USED_ELSEWHERE = {
    "cluster.node.config": {
        "archive_control_channel",
        "archive_dir",
        "cluster_clock",
        "cluster_dir",
        "consensus_channel",
        "dir",
        "driver_dir",
        "ingress_channel",
        "leads_java_members",
        "members",
        "metrics_endpoint",
        "service_mode",
        "listen",
        "tcp_ingress",
        "tls_ca",
        "tls_certificate",
        "tls_key",
    },
    "cluster.node.exposure": {"insecure_network"},
    "cluster.security.loading": {"authenticator", "authenticator_file", "authorisation"},
    "cluster.node.machine": {
        "aeron_dir",
        "grpc_gateway",
        "ipc_ingress",
        "log_export_watermark",
        "standby_token_file",
        "tls_client_certificates",
    },
    "cluster.node.node": {"idle_spin_ns", "log_level", "node_log_bytes"},
}


def attributes_read_in(module: str) -> set[str]:
    tree = ast.parse(Path(find_spec(module).origin).read_text())
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_no_key_is_lost():
    """Each reaches the consensus module, the ports or a life by its name, or is read where the table says."""
    taken = {field.name for part in TAKEN_BY_NAME for field in fields(part)}
    elsewhere = set().union(*USED_ELSEWHERE.values())
    assert set(config.NodeConfig.model_fields) - taken == elsewhere
    for module, keys in USED_ELSEWHERE.items():
        assert keys <= attributes_read_in(module)


def test_the_consensus_module_is_given_what_the_file_says(tmp_path):
    text = """
        member_id = 1
        members = ["1,b:1,b:2,b:3,b:4,b:5", "0,a:1,a:2,a:3,a:4,a:5"]
        services = ["echo", "echo"]
        cluster_clock = "us"
        election_timeout = "3s"
        log_mtu = 4096
    """
    context = load_text(tmp_path, text).module_context
    assert (context.member_id, context.member_ids) == (1, (0, 1))
    assert context.ingress_endpoints == "1=b:1,0=a:1"
    assert context.service_count == 2
    assert context.time_unit is ClusterTimeUnit.MICROS
    assert context.election_timeout_ns == 3_000_000_000
    assert context.log_mtu == 4096


def test_the_defaults_of_keys_are_those_of_what_they_configure():
    loaded = config_text.load(environment={})
    assert loaded.bounds == Bounds()
    assert loaded.module_context == ConsensusModuleContext(
        ingress_endpoints="0=127.0.0.1:9000",
        tcp_ingress_endpoints="0=tcp:127.0.0.1:9001",
        member_endpoints="0,127.0.0.1:9000,127.0.0.1:9002,127.0.0.1:9002,127.0.0.1:9002,127.0.0.1:9002",
    )


@pytest.mark.parametrize(
    ("keys", "channel"),
    [
        ({}, ""),
        ({"ingress_channel": "aeron:udp"}, "aeron:udp?endpoint=127.0.0.1:9000|rejoin=false"),
        (
            {"ingress_channel": "aeron:udp?mtu=8k", "listen": "0.0.0.0"},
            "aeron:udp?mtu=8k|endpoint=0.0.0.0:9000|rejoin=false",
        ),
        (
            {"ingress_channel": "aeron:udp?endpoint=224.0.1.1:7"},
            "aeron:udp?endpoint=224.0.1.1:7|rejoin=false",
        ),
    ],
)
def test_aeron_s_clients_come_to_the_ingress_endpoint_unless_the_channel_has_another(keys, channel):
    assert config_text.load(overrides=keys, environment={}).aeron_ingress == channel


@pytest.mark.parametrize(
    ("keys", "archive", "backups"),
    [
        ({}, "", ""),
        (
            {"archive_control_channel": "aeron:udp"},
            "aeron:udp?endpoint=a:5",
            "aeron:udp?endpoint=a:2",
        ),
        (
            {
                "archive_control_channel": "aeron:udp?endpoint=b:7",
                "consensus_channel": "aeron:udp?mtu=8k",
                "listen": "0.0.0.0",
            },
            "aeron:udp?endpoint=b:7",
            "aeron:udp?mtu=8k|endpoint=0.0.0.0:2",
        ),
    ],
)
def test_clients_of_the_archive_come_to_its_endpoint_and_backups_ask_at_the_consensus_endpoint(
    keys, archive, backups
):
    keys |= {"members": ["0,a:1,a:2,a:3,a:4,a:5", "1,b:1,b:2,b:3,b:4,b:5"]}
    found = config_text.load(overrides=keys, environment={})
    assert (found.aeron_archive, found.aeron_backups) == (archive, backups)
    assert found.aeron_channels == ({CONSENSUS: backups} if backups else {})


@pytest.mark.parametrize("tcp_ingress, known", [("none", ""), ("a:7000", "1=tcp:a:7000")])
def test_clients_over_tcp_are_told_of_all_members_or_of_none_over_tcp(tcp_ingress, known):
    members = [f"{i},a:{9000 + 10 * i}" + ",a:1" * 4 for i in range(2)]
    keys = {"members": members, "member_id": 1}
    loaded = config_text.load(overrides={**keys, "tcp_ingress": tcp_ingress}, environment={})
    assert (loaded.tcp_endpoints, loaded.module_context.tcp_ingress_endpoints) == (known, "")
    every = "0=tcp:a:9001,1=tcp:a:9011"
    assert config_text.load(overrides=keys, environment={}).module_context.tcp_ingress_endpoints == every


@pytest.mark.parametrize(
    "given, listen, address",
    [
        ("none", "", ""),
        ("auto", "", "127.0.0.1:9003"),
        ("auto", "::", "[::]:9003"),
        ("[::1]:9100", "::", "[::1]:9100"),
    ],
)
def test_metrics_are_served_where_the_keys_say_and_nowhere_by_default(given, listen, address):
    assert config_text.load(environment={}).metrics_address == ""
    loaded = config_text.load(overrides={"metrics_endpoint": given, "listen": listen}, environment={})
    assert loaded.metrics_address == address


def test_tls_is_configured_whole_or_not_at_all():
    files = {"tls_ca": "ca.pem", "tls_certificate": "c/{member_id}.pem", "tls_key": "c/{member_id}.key"}
    for missing in files:
        some = {key: value for key, value in files.items() if key != missing}
        with pytest.raises(ConfigurationError, match="tls_certificate, tls_key and tls_ca: expected all"):
            config_text.load(overrides=some, environment={})
    with pytest.raises(ConfigurationError, match="tls_client_certificates: expected none without tls_cert"):
        config_text.load(overrides={"tls_client_certificates": "required"}, environment={})
    loaded = config_text.load(overrides=files, environment={})
    assert loaded.tls_files == TlsFiles("ca.pem", "c/0.pem", "c/0.key")
    assert config_text.load(environment={}).tls_files is None


def test_variables_of_clients_are_no_members_keys():
    variables = {"CLUSTER_TLS_CA": "ca.pem", "CLUSTER_TLS_CERTIFICATE": "a.pem", "CLUSTER_TLS_KEY": "a.key"}
    assert config_text.load(environment=variables).tls_files is None
    assert config_text.unknown_variables(variables) == []


def test_a_client_may_be_answered_at_once_what_may_be_committed_at_once():
    """By a service that answers as much as it is sent: who reads it all is not cut off."""
    uncommitted_bytes_max = ConsensusModuleContext.uncommitted_bytes_max
    assert Bounds().egress_bytes_max >= uncommitted_bytes_max + UNREAD_BYTES_MAX + BYTES_PER_POLL_MAX
