"""Members with different files of rights, as while those are being changed: some reject a reader."""

import pytest

from cluster.errors import AuthenticationRejected
from tests.reader.scripted import FakeMember, open_reader


@pytest.fixture
def members():
    return [FakeMember(n) for n in range(3)]


def reject(*members):
    def status():
        raise AuthenticationRejected("the reader has no right to read")

    for member in members:
        member.status = status


def read(reader, begin, end):
    return [position for position, _ in reader.blocks(begin, end, is_committed=True)]


def test_who_is_rejected_by_one_member_is_served_by_another(members):
    asks = [
        lambda reader: read(reader, 0, 640) == list(range(0, 640, 64)),
        lambda reader: reader.commit_position() == 6400,
        lambda reader: reader.log.term_before(640) == "a term",
    ]
    readers = [open_reader(members) for _ in asks]
    for member in members:
        member.terms = {640: "a term"}
    reject(members[readers[0].log._order[0]])
    assert all(ask(reader) for ask, reader in zip(asks, readers, strict=True))


def test_who_is_rejected_by_all_hears_so_at_once_with_what_each_says(members):
    asks = [lambda reader: read(reader, 0, 640), lambda reader: reader.commit_position()]
    waits = []
    readers = [open_reader(members, on_wait=waits.append) for _ in asks]
    reject(*members)
    for ask, reader in zip(asks, readers, strict=True):
        with pytest.raises(AuthenticationRejected, match=r"member 0: .*no right to read; member 1: "):
            ask(reader)
    assert waits == []
