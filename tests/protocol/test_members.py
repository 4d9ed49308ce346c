"""Members strings and endpoint lists, and what is said of wrong ones."""

import pytest

from cluster.errors import ConfigurationError
from cluster.protocol.members import (
    MemberEndpoints,
    check_member_endpoints,
    find_member,
    format_members,
    ingress_endpoints,
    parse_ingress_endpoints,
    parse_members,
)

THREE = "0,h0:1,h0:2,h0:3,h0:4,h0:5|1,h1:1,h1:2,h1:3,h1:4,h1:5|2,h2:1,h2:2,h2:3,h2:4,h2:5"


def test_a_members_string_reads_and_writes():
    members = parse_members(THREE)

    assert [member.member_id for member in members] == [0, 1, 2]
    assert members[1] == MemberEndpoints(1, "h1:1", "h1:2", "h1:3", "h1:4", "h1:5")
    assert format_members(members) == THREE
    assert ingress_endpoints(members) == "0=h0:1,1=h1:1,2=h2:1"
    assert find_member(members, 2).archive_endpoint == "h2:5"
    assert parse_members("") == ()


@pytest.mark.parametrize("extra", ["", ",r:6", ",r:6,e:7"])
def test_a_member_has_six_to_eight_parts(extra):
    (member,) = parse_members("0,a:1,a:2,a:3,a:4,a:5" + extra)

    assert str(member) == "0,a:1,a:2,a:3,a:4,a:5" + extra
    assert (member.archive_response_endpoint, member.egress_response_endpoint) == (
        *extra.split(",")[1:],
        "",
        "",
    )[:2]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ("0,a:1,a:2,a:3,a:4", "has 5 parts, expected id,ingress,consensus,log,catchup,archive"),
        ("0,a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8", "has 9 parts"),
        ("x,a:1,a:2,a:3,a:4,a:5", "member id 'x' is not a whole number"),
        ("-1,a:1,a:2,a:3,a:4,a:5", "member id -1 is not between 0 and 2147483647"),
        ("0,a:1,,a:3,a:4,a:5", "has an empty part"),
        (THREE + "|", "has 1 parts"),
        (THREE + "|1,h1:1,h1:2,h1:3,h1:4,h1:5", "id 1 comes twice"),
    ],
)
def test_a_wrong_members_string_is_told_by_its_member(members, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        parse_members(members)
    assert caught.value.exit_status == 2


def test_a_member_that_is_not_listed_cannot_start():
    with pytest.raises(
        ConfigurationError, match=r"member id 3 is not in the cluster members, which are \[0, 1"
    ):
        find_member(parse_members(THREE), 3)


def test_member_endpoints_must_say_the_same_as_the_members():
    member = parse_members(THREE)[0]

    check_member_endpoints("h0:1,h0:2,h0:3,h0:4,h0:5", member)
    with pytest.raises(ConfigurationError, match="have 4 parts"):
        check_member_endpoints("h0:1,h0:2,h0:3,h0:4", member)
    with pytest.raises(ConfigurationError, match="differ from the cluster members"):
        check_member_endpoints("h0:1,h0:2,h0:3,h0:4,h0:9", member)


def test_ingress_endpoints_keep_their_order():
    endpoints = parse_ingress_endpoints("2=h2:1, 0=tcp:h0:1,1=ipc:/run/a=b.sock")

    assert list(endpoints.items()) == [(2, "h2:1"), (0, "tcp:h0:1"), (1, "ipc:/run/a=b.sock")]


@pytest.mark.conformance("S-6")
@pytest.mark.parametrize("text", ["localhost:9000", "0=h:1,h:2", "", "0=h:1,"])
def test_an_endpoint_without_a_member_id_is_a_configuration_error(text):
    with pytest.raises(ConfigurationError, match="has no '=', expected memberId=endpoint"):
        parse_ingress_endpoints(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a=h:1", "'a' is not a whole number"),
        ("0=", "member 0 has no endpoint"),
        ("0=a:1,0=b:1", "comes twice"),
    ],
)
def test_a_wrong_endpoint_list_is_told_by_its_item(text, said):
    with pytest.raises(ConfigurationError, match=said):
        parse_ingress_endpoints(text)
