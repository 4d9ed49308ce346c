"""A process that is not allowed the memory it takes says so, with the limit and what is expected."""

import resource

import pytest

from cluster.cli.main import main
from cluster.errors import ConfigurationError
from cluster.node import memory

MIB = 1024 * 1024


@pytest.fixture
def allowed(monkeypatch):
    """Have the process be allowed so many MiB of address space."""

    def allowed(mib):
        monkeypatch.setattr(resource, "getrlimit", lambda _: (mib * MIB, resource.RLIM_INFINITY))

    return allowed


def test_a_member_is_not_started_where_it_would_fail_for_want_of_addresses(allowed, capsys, tmp_path):
    allowed(800)
    assert main(["up", "--dir", str(tmp_path / "c")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("800 MiB of address space are allowed to this process (RLIMIT_AS), expected 1536 ")
    assert not (tmp_path / "c").exists()
    with pytest.raises(ConfigurationError, match="800 MiB"):
        memory.check_address_space()


def test_with_enough_of_them_or_without_a_limit_it_is(allowed):
    memory.check_address_space()
    allowed(1536)
    memory.check_address_space()


def test_a_command_whose_libraries_fail_for_it_says_that_and_no_traceback(allowed, capsys, monkeypatch):
    """They raise whatever they like: MemoryError, OSError, ImportError, RuntimeError for a thread."""
    allowed(400)

    def cannot_map(*_):
        raise ImportError("libarrow.so: failed to map segment from shared object")

    monkeypatch.setattr("cluster.cli.main._words", cannot_map)
    assert main(["log", "tail"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("ImportError: libarrow.so: failed to map segment from shared object; 400 MiB")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with pytest.raises(ImportError):
        main(["log", "tail"])
