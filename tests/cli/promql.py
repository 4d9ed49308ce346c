"""The part of PromQL that conf/monitoring/ uses, over scrapes that a test has made.

Instant vectors are dicts from labels to values, scalars are numbers. ``increase`` and ``rate`` are not
extrapolated to the ends of their window as Prometheus does it. Vectors meet where all labels are the same.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]
Scrape: TypeAlias = dict[str, Vector]

TOKEN = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*|[0-9.]+[smhd]?|==|[-+*/<>()\[\],])")
SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
OPERATORS: dict[str, Callable[[float, float], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": lambda a, b: a / b if b else math.nan,
    "<": operator.lt, ">": operator.gt, "==": operator.eq,
}  # fmt: skip


def scrape(text: str, **labels: str) -> Scrape:
    """A page as a scrape job with these labels stores it."""
    found: Scrape = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[frozenset({**sample.labels, **labels}.items())] = sample.value
    return found


def merged(*scrapes: Scrape) -> Scrape:
    """Those of several instances at one time."""
    found: Scrape = {}
    for one in scrapes:
        for name, vector in one.items():
            found.setdefault(name, {}).update(vector)
    return found


def names_in(text: str) -> set[str]:
    """The series that an expression names."""
    return set(re.findall(r"\b(?:cluster|process)_[a-z0-9_]+", text))


def evaluate(text: str, scrapes: list[tuple[float, Scrape]]) -> float | Vector:
    """The value of an expression at the time of the last of the scrapes, which are in the order of time."""
    tokens = [match[1] for match in TOKEN.finditer(text)]
    assert "".join(tokens) == re.sub(r"\s", "", text), "a token that is not known"
    return _Evaluation(iter([*tokens, ""]), scrapes).whole()


class _Evaluation:
    def __init__(self, tokens: Iterator[str], scrapes: list[tuple[float, Scrape]]) -> None:
        self._tokens = tokens
        self._scrapes = scrapes
        self._token = next(tokens)

    def _take(self, expected: str = "") -> str:
        token, self._token = self._token, next(self._tokens, "")
        assert expected in ("", token), f"{token!r}, expected {expected!r}"
        return token

    def whole(self) -> float | Vector:
        value = self._comparison()
        assert not self._token, f"{self._token!r} is left"
        return value

    def _comparison(self) -> Any:
        left = self._sum()
        if self._token not in ("<", ">", "=="):
            return left
        sign = self._take()
        right = self._sum()
        kept = _combined(sign, left, right)
        return {labels: left[labels] for labels, is_kept in kept.items() if is_kept}

    def _sum(self) -> Any:
        return self._chain(self._product, "+-")

    def _product(self) -> Any:
        return self._chain(self._factor, "*/")

    def _chain(self, part: Callable[[], Any], signs: str) -> Any:
        value = part()
        while self._token and self._token in signs:
            value = _combined(self._take(), value, part())
        return value

    def _factor(self) -> Any:
        token = self._take()
        if token == "(":
            value = self._comparison()
            self._take(")")
            return value
        if token[0].isdigit():
            return float(token)
        if token in ("max", "min"):
            return self._aggregate(max if token == "max" else min)
        if self._token == "(":
            return self._call(token)
        if self._token == "[":
            self._take("[")
            window = self._take()
            self._take("]")
            return self._range(token, int(window[:-1]) * SECONDS[window[-1]])
        return dict(self._scrapes[-1][1].get(token, {}))

    def _aggregate(self, of: Callable[[list[float]], float]) -> Vector:
        self._take("by")
        self._take("(")
        kept = self._take()
        self._take(")")
        groups: dict[Labels, list[float]] = {}
        for labels, value in self._factor().items():
            groups.setdefault(frozenset(pair for pair in labels if pair[0] == kept), []).append(value)
        return {labels: of(values) for labels, values in groups.items()}

    def _call(self, name: str) -> Any:
        self._take("(")
        arguments = []
        while self._token != ")":
            arguments.append(self._comparison())
            if self._token == ",":
                self._take()
        self._take(")")
        return getattr(self, f"_{name}")(*arguments)

    def _time(self) -> float:
        return self._scrapes[-1][0]

    def _abs(self, vector: Vector) -> Vector:
        return {labels: abs(value) for labels, value in vector.items()}

    def _range(self, name: str, seconds: int) -> dict[Labels, list[tuple[float, float]]]:
        begin = self._scrapes[-1][0] - seconds
        found: dict[Labels, list[tuple[float, float]]] = {}
        for at, one in self._scrapes:
            if at >= begin:
                for labels, value in one.get(name, {}).items():
                    found.setdefault(labels, []).append((at, value))
        return {labels: points for labels, points in found.items() if len(points) > 1}

    def _increase(self, series: dict[Labels, list[tuple[float, float]]]) -> Vector:
        """What a counter has risen by; where it fell, it began again at 0."""
        return {
            labels: sum(
                later - earlier if later >= earlier else later
                for (_, earlier), (_, later) in pairwise(points)
            )
            for labels, points in series.items()
        }

    def _rate(self, series: dict[Labels, list[tuple[float, float]]]) -> Vector:
        rise = self._increase(series)
        return {labels: rise[labels] / (points[-1][0] - points[0][0]) for labels, points in series.items()}

    def _histogram_quantile(self, quantile: float, buckets: Vector) -> Vector:
        """By the straight line within the bucket; above the last bound, that."""
        series: dict[Labels, list[tuple[float, float]]] = {}
        for labels, count in buckets.items():
            bound = float(dict(labels)["le"])
            rest = frozenset(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, []).append((bound, count))
        return {labels: _quantile(quantile, sorted(points)) for labels, points in series.items()}


def _quantile(quantile: float, points: list[tuple[float, float]]) -> float:
    total = points[-1][1]
    if not total:
        return math.nan
    below_bound, below_count = 0.0, 0.0
    for bound, count in points:
        if count >= quantile * total:
            if math.isinf(bound):
                return below_bound
            share = (quantile * total - below_count) / (count - below_count)
            return below_bound + (bound - below_bound) * share
        below_bound, below_count = bound, count
    raise AssertionError("the last bucket has all")


def _combined(sign: str, left: Any, right: Any) -> Any:
    of = OPERATORS[sign]
    if isinstance(left, dict) and isinstance(right, dict):
        return {labels: of(value, right[labels]) for labels, value in left.items() if labels in right}
    if isinstance(left, dict):
        return {labels: of(value, right) for labels, value in left.items()}
    if isinstance(right, dict):
        return {labels: of(left, value) for labels, value in right.items()}
    return of(left, right)
