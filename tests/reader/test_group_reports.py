"""The thread that reports for a consumer group lives through what is meant for nothing."""

import threading

from cluster.client.cluster_client import ClusterClient
from cluster.reader import group_reports
from cluster.reader.group_reports import GroupReports


def test_a_report_that_raises_anything_is_told_and_made_again(monkeypatch):
    asked, told = [], []

    class Session:
        def close(self):
            pass

    def connect(endpoints, *, consumer):
        asked.append(consumer.position)
        if len(asked) <= 2:
            raise RuntimeError("can't start new thread")
        return Session()

    monkeypatch.setattr(ClusterClient, "connect", connect)
    reports = GroupReports("billing", "0=nowhere:1", told.append, interval_s=0.001)
    reports.reached(64)
    while not told:
        pass
    reports.reached(128)
    while len(asked) < 2:
        pass
    assert reports.close() is None
    assert asked[-1] == 128
    (line,) = told
    assert line.startswith("consumer group billing is not reported at 64: RuntimeError(")


def test_what_is_reached_while_a_report_is_made_is_reported_next(monkeypatch):
    asked, may_end = [], threading.Event()

    class Session:
        def __init__(self, endpoints, *, consumer):
            asked.append(consumer.position)

        def close(self):
            may_end.wait()

    monkeypatch.setattr(ClusterClient, "connect", Session)
    reports = GroupReports("billing", "0=nowhere:1", print, interval_s=0.001)
    reports.reached(64)
    while not asked:
        pass
    reports.reached(128)
    may_end.set()
    assert reports.close() is None
    assert asked == [64, 128]


def test_a_listener_that_raises_and_a_thread_that_is_not_to_be_had_end_no_reports(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("no more threads")

    reports = GroupReports("billing", "0=nowhere:1", refuse, interval_s=0.001)
    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", refuse)
        reports.reached(64)
    monkeypatch.setattr(ClusterClient, "connect", refuse)
    reports.reached(64)
    assert "no more threads" in str(reports.close())


def test_a_reader_that_is_open_and_has_nothing_new_is_not_silent(monkeypatch):
    """KAFKA-4682: offsets of a group expired while its consumers were there, and had nothing to commit."""
    asked, told = [], []

    class Session:
        def __init__(self, endpoints, *, consumer):
            asked.append(consumer.position)
            if len(asked) % 2:
                raise RuntimeError("no leader just now")

        def close(self):
            pass

    monkeypatch.setattr(ClusterClient, "connect", Session)
    monkeypatch.setattr(group_reports, "REPEAT_INTERVAL_S", 0.001)
    reports = GroupReports("billing", "0=nowhere:1", told.append, interval_s=0.001)
    reports.found(64)
    while len(asked) < 4:
        pass
    reports.reached(128)
    while asked.count(128) < 4:
        pass
    assert reports.close() is None
    assert asked == sorted(asked) and set(asked) == {64, 128}
    assert len(told) <= 1, "of the new position alone"
