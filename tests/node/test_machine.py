"""What the parts of a member get from its configuration, and what its operator hears of its certificate."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.errors import MediaDriverError, RemoteProtocolError, TlsFailed
from cluster.node import config_text, control, machine
from cluster.node.machine import DAY_MS, Machine
from cluster.transport.endpoint import Medium

END_MS = 100 * DAY_MS


class Warnings(list[str]):
    def warning(self, event: str, **_: Any) -> None:
        self.append(event)

    info = on_certificates_read = record = None

    def often(self, event: str, why: str, now_ns: int, *, is_warning: bool) -> None:
        if is_warning:
            self.append(why)


@pytest.fixture
def warned() -> Warnings:
    return Warnings()


@pytest.fixture
def made(warned: Warnings) -> Machine:
    """With a certificate that ends at ``END_MS``."""
    look = SimpleNamespace(do_work=lambda: 0)
    not_after = datetime.fromtimestamp(END_MS / 1000, UTC)
    tls = SimpleNamespace(look=lambda *_: look, exposure="", not_after=not_after)
    members = [f"{i},a:{9000 + 10 * i}" + f",a:{9002 + 10 * i}" * 4 for i in range(3)]
    keys = {"members": members, "member_id": 1, "leader_heartbeat_timeout": "30s"}
    config: Any = config_text.load(overrides=keys, environment={})
    part: Any = SimpleNamespace(on_administered=None, calls=None)
    told = {"on_service_error": part, "on_error": print, "restart": part}
    return Machine(config, part, part, part, part, warned, part, tls, part, **told)


def test_links_go_by_the_intervals_of_the_members(monkeypatch, made):
    monkeypatch.setattr(machine, "MemberLinks", lambda *given, **named: (given, named))

    (member_id, _, members), named = made.open_links()
    context = made._config.module_context
    assert (member_id, sorted(members)) == (1, [0, 1, 2])
    assert named["heartbeat_interval_ns"] == context.leader_heartbeat_interval_ns
    assert named["link_timeout_ns"] == context.link_timeout_ns == 60_000_000_000
    assert named["secret"] != made.open_links()[1]["secret"], "each life has its own"


def test_administrators_hear_of_the_members_by_the_medium_that_they_came_by(monkeypatch, made):
    monkeypatch.setattr(control, "ControlPort", lambda *given: given)

    endpoints = next(each for each in made._control_port() if isinstance(each, dict))
    assert endpoints[Medium.GRPC].startswith("0=a:9000,")
    assert endpoints[Medium.TCP].startswith("0=tcp:a:9001,")


def test_of_peers_that_are_cut_off_those_are_a_warning_that_failed_at_a_certificate(made, warned):
    made._on_peer_error(RemoteProtocolError("no frame"))
    made._on_peer_error(TlsFailed("has expired"))
    assert (warned, made.cut_off_count) == (["has expired"], 2)


def test_of_what_ends_a_turn_for_aeron_s_clients_a_mistake_is_a_warning_that_says_where(made, warned):
    for error in (MediaDriverError("no driver"), OSError(24, "Too many open files"), KeyError("a mistake")):
        try:
            raise error
        except Exception as raised:
            made._on_aeron_error(raised)
    (why,) = warned
    assert why.startswith("KeyError: 'a mistake', in test_of_what_ends_a_turn")


def test_in_the_last_14_days_of_a_certificate_each_day_has_one_warning(monkeypatch, made, warned):
    for hour in range(24 * 20):
        monkeypatch.setattr(machine, "epoch_ms", lambda hour=hour: END_MS - 16 * DAY_MS + hour * DAY_MS // 24)
        made.refresh_certificates()

    assert warned == ["its certificate ends soon"] * 18
