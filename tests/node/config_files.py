"""``conf/node.toml`` and ``conf/backup.toml``: every key at its default, with what the key says of itself.

python -m tests.node.config_files node > conf/node.toml
python -m tests.node.config_files backup > conf/backup.toml
"""

import sys
import textwrap
from collections.abc import Mapping

from pydantic import BaseModel

from cluster.node.backup_config import BackupConfig
from cluster.node.config import NodeConfig
from cluster.node.config_text import to_toml


def node_toml() -> str:
    """The whole of ``conf/node.toml``."""
    return text_of(
        NodeConfig,
        "A member's configuration, complete: each key at its default, so that any of them may be left out. "
        "The environment variable CLUSTER_KEY wins over the file, --member over both. "
        "Durations take the suffixes ns, us, ms, s (a plain number is nanoseconds), sizes k, m, g. "
        '"Aeron" is the property that means the same there. A running member takes a changed key that is '
        '"reloadable" at SIGHUP, and any other at its next start.',
        "cluster node --config conf/node.toml",
        required={"members": "required for more than one member"},
    )


def backup_toml() -> str:
    """The whole of ``conf/backup.toml``."""
    return text_of(
        BackupConfig,
        "The configuration of a backup, complete: each key at its default, so that any but endpoints may be "
        "left out. The environment variable CLUSTER_BACKUP_KEY wins over the file, --dir over both. "
        'A running backup takes a changed key that is "reloadable" at SIGHUP. '
        "docs/backup.md has the rest.",
        "cluster backup --config conf/backup.toml",
        required={"endpoints": "required, or CLUSTER_ENDPOINTS"},
    )


def text_of(model: type[BaseModel], intro: str, command: str, required: Mapping[str, str]) -> str:
    """Every key of a configuration with its text, unit, Aeron's name and default."""
    lines = textwrap.wrap(intro, 100, initial_indent="# ", subsequent_indent="# ")
    lines += ["#", f"#     {command}"]
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        if extra["section"]:
            title = f"# ---- {extra['section']} "
            lines += ["", title + "-" * (102 - len(title))]
        facts = [required.get(name, f"default: {to_toml(extra['default'])}")]
        facts += [f"{what}: {extra[what]}" for what in ("unit", "aeron") if extra[what]]
        facts += ["reloadable"] if extra["reloadable"] else []
        lines += [
            "",
            *textwrap.wrap(field.description or "", 100, initial_indent="# ", subsequent_indent="# "),
        ]
        lines.append("# " + "; ".join(facts).replace("aeron:", "Aeron:"))
        lines.append(f"{field.alias} = {to_toml(extra['default'])}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print({"node": node_toml, "backup": backup_toml}[sys.argv[1]](), end="")
