"""A configuration as text: ``conf/node.toml``, which documents every key, and files of a few keys."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import StorageError

if TYPE_CHECKING:
    from pydantic import BaseModel


def to_toml(value: Any) -> str:
    """A value as TOML writes it; long lists take a line for each item."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list) and len(value) > 0 and any(len(str(item)) > 20 for item in value):
        return "[\n" + "".join(f"    {to_toml(item)},\n" for item in value) + "]"
    if isinstance(value, list):
        return "[" + ", ".join(to_toml(item) for item in value) + "]"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def write(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write the given keys as a file that ``config.load`` takes; its folder is made when missing.

    The file is there whole, as it was before or as it shall be. Raises StorageError.
    """
    path = Path(path)
    text = "".join(f"{key} = {to_toml(value)}\n" for key, value in values.items())
    new = path.with_name(f"{path.name}.new")
    try:
        if path.exists() and path.read_text() == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text)
        new.replace(path)
    except OSError as error:
        raise StorageError(path, error.errno, "cannot be written") from None


def documentation(model: type[BaseModel]) -> str:
    """The whole of ``conf/node.toml``: every key with its text, unit, Aeron's name and default."""
    lines = textwrap.wrap(
        "A member's configuration, complete: each key at its default, so that any of them may be left out. "
        "The environment variable CLUSTER_KEY wins over the file, --member-id over both. "
        "Durations take the suffixes ns, us, ms, s (a plain number is nanoseconds), sizes k, m, g. "
        '"Aeron" is the property that means the same there.',
        100,
        initial_indent="# ",
        subsequent_indent="# ",
    )
    lines += ["#", "#     cluster node --config conf/node.toml"]
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        if extra["section"]:
            title = f"# ---- {extra['section']} "
            lines += ["", title + "-" * (102 - len(title))]
        facts = [
            f"default: {to_toml(extra['default'])}"
            if name != "members"
            else "required for more than one member"
        ]
        facts += [f"{what}: {extra[what]}" for what in ("unit", "aeron") if extra[what]]
        lines += [
            "",
            *textwrap.wrap(field.description or "", 100, initial_indent="# ", subsequent_indent="# "),
        ]
        lines.append("# " + "; ".join(facts).replace("aeron:", "Aeron:"))
        lines.append(f"{field.alias} = {to_toml(extra['default'])}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from cluster.node.config import NodeConfig

    print(documentation(NodeConfig), end="")
