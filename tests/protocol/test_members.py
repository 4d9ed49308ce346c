"""Members strings and endpoint lists, and what is said of wrong ones."""

import pytest

from cluster.errors import ConfigurationError
from cluster.protocol.members import MemberEndpoints, ingress_endpoints, parse_members

THREE = "0,h0:1,h0:2,h0:3,h0:4,h0:5|1,h1:1,h1:2,h1:3,h1:4,h1:5|2,h2:1,h2:2,h2:3,h2:4,h2:5"


def test_a_members_string_reads_and_writes():
    members = parse_members(THREE)

    assert [member.member_id for member in members] == [0, 1, 2]
    assert members[1] == MemberEndpoints(1, "h1:1", "h1:2", "h1:3", "h1:4", "h1:5")
    assert "|".join(map(str, members)) == THREE
    assert ingress_endpoints(members) == "0=h0:1,1=h1:1,2=h2:1"
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
        (THREE + "|1,h1:1,h1:2,h1:3,h1:4,h1:5", "id 1 is given twice"),
    ],
)
def test_a_wrong_members_string_is_told_by_its_member(members, said):
    with pytest.raises(ConfigurationError, match=said) as caught:
        parse_members(members)
    assert caught.value.exit_status == 2
