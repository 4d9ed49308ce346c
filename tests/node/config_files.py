"""``conf/node.toml`` and ``conf/backup.toml``: what they say of each key, beside its value."""

from __future__ import annotations

import re
import tomllib
from typing import Any, NamedTuple

from pydantic import BaseModel

from cluster.node.config_text import to_toml
from cluster.node.config_types import is_reloadable
from tests.tree import ROOT

KEY = re.compile(r"((?:# .+\n)+)# ((?:default: |required).*)\n([a-z_]+) = ")


class Said(NamedTuple):
    """Of a key: what it is for, and facts such as ``default: "10s"``, ``reloadable``."""

    text: str
    facts: list[str]
    value: Any


def said_in(name: str) -> dict[str, Said]:
    """By key, in the order of the file."""
    text = (ROOT / "conf" / name).read_text()
    values = tomllib.loads(text)
    return {key: Said(told, facts.split("; "), values[key]) for told, facts, key in KEY.findall(text)}


def check_says_all(name: str, model: type[BaseModel]) -> None:
    """Each key of the model stands there, in its order, with its default and whether it is reloadable."""
    said = said_in(name)
    assert list(said) == [field.alias for field in model.model_fields.values()]
    for field in model.model_fields.values():
        key = said[field.alias or ""]
        assert key.facts[0] == f"default: {to_toml(key.value)}" or key.facts[0].startswith("required"), key
        assert ("reloadable" in key.facts) == is_reloadable(field), key
