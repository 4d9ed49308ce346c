"""conf/monitoring/alerts.yml judged by Prometheus's own ``promtool``, over pages that tests have scraped.

A page stands for half an hour in which it does not change, and the next one for a quarter: its gauges as they
are, its counters rising by the same each minute. Prometheus's clock begins at 0 there, so what pages say of
the time of day is moved.
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.tree import ROOT

PROMTOOL = ROOT / "build" / "promtool"
ALERTS = ROOT / "conf" / "monitoring" / "alerts.yml"
RULES = {
    rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
}
BEFORE_MIN, AFTER_MIN = 30, 15
COUNTERS = ("_total", "_bucket", "_count", "_sum")
TIMES_OF_DAY = {
    "cluster_backup_next_query_time_seconds",
    "cluster_certificate_end_seconds",
    "cluster_snapshot_time_seconds",
}

Page: TypeAlias = dict[str, float]


def scrape(text: str, **labels: str) -> Page:
    """What a page says by series, as a scrape job with these labels stores it."""
    return {
        sample.name + json.dumps({**sample.labels, **labels}): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(address: str, context: ssl.SSLContext | None = None) -> Page:
    """What a member serves there."""
    scheme = "http" if context is None else "https"
    with urllib.request.urlopen(f"{scheme}://{address}/metrics", timeout=30, context=context) as response:
        return scrape(response.read().decode(), job="c", instance=address)


def names_in(text: str) -> set[str]:
    """The series that an expression names, or the keys of a page."""
    return set(re.findall(r"\b(?:cluster|process)_[a-z0-9_]+", text))


def rule_test(before: Page, after: Page, fires: Mapping[str, bool]) -> dict[str, Any]:
    """A test of rules: whether each of these alerts fires at the end."""
    return {
        "interval": "1m",
        "input_series": [
            {"series": _selector(series), "values": _values(series, before.get(series), after.get(series))}
            for series in before | after
        ],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) > bool 0',
                "eval_time": f"{BEFORE_MIN + AFTER_MIN - 1}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if does else [],
            }
            for alert, does in fires.items()
        ],
    }


def _selector(series: str) -> str:
    name, _, labels = series.partition("{")
    pairs = (f"{label}={json.dumps(value)}" for label, value in json.loads("{" + labels).items())
    return f"{name}{{{', '.join(pairs)}}}"


def _values(series: str, before: float | None, after: float | None) -> str:
    name = series.partition("{")[0]
    moved = time.time() if name in TIMES_OF_DAY else 0.0
    rise = 0.0
    if name.endswith(COUNTERS) and before is not None and after is not None:
        rise = after - before
    return f"{_for(before, moved, 0.0, BEFORE_MIN)} {_for(after, moved, rise, AFTER_MIN)}"


def _for(value: float | None, moved: float, rise: float, minutes: int) -> str:
    return f"_x{minutes}" if value is None else f"{value - moved}{rise:+}x{minutes - 1}"


def said_of(folder: Path, tests: list[dict[str, Any]]) -> str:
    """What ``promtool`` says of tests of the rules; nothing, where all pass."""
    file = folder / "rules.yml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ""
