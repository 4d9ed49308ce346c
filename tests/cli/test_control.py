"""``cluster tool shutdown --endpoints`` waits until nobody listens, and takes no silence for that."""

import errno
import socket

import pytest

from cluster.cli import control
from cluster.errors import TimedOut
from cluster.node.control import ControlAction
from cluster.protocol.enums import ClusterControlToggle
from cluster.transport.endpoint import parse_endpoint


@pytest.mark.parametrize("error", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNRESET])
def test_a_network_that_breaks_does_not_pass_for_a_member_that_has_ended(monkeypatch, error):
    def fail(endpoint, timeout_s):
        raise OSError(error, "the network breaks")

    monkeypatch.setattr(control, "connect_within", fail)
    monkeypatch.setattr(control, "END_TIMEOUT_S", 0.0)
    monkeypatch.setattr(control, "_outcome_of", lambda action, members: None)
    with pytest.raises(TimedOut, match=r"not ended within 0 s: tcp:127.0.0.1:9 \(the network breaks\)"):
        control._ask_over_network(ControlAction(ClusterControlToggle.SHUTDOWN), "tcp:127.0.0.1:9")


def test_a_member_has_ended_once_its_port_refuses_or_its_socket_is_gone(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = parse_endpoint(f"tcp:127.0.0.1:{server.getsockname()[1]}")
        assert control._why_not_ended(endpoint) == "it listens"
    assert control._why_not_ended(endpoint) == ""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        endpoint = parse_endpoint(f"ipc:{tmp_path}/s")
        assert control._why_not_ended(endpoint) == "it listens"
    assert control._why_not_ended(endpoint) == ""
    (tmp_path / "s").unlink()
    assert control._why_not_ended(endpoint) == ""
