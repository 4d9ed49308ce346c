"""Semantic versions packed in an i32: ``major << 16 | minor << 8 | patch``, each part 0..255.

Everywhere two versions fit when their majors are equal.
"""

from typing import Final

from cluster.errors import LogDamaged


def semantic_version(major: int, minor: int, patch: int) -> int:
    """The packed form; all parts zero would be a null and is not a version."""
    assert all(0 <= part <= 255 for part in (major, minor, patch)) and major + minor + patch > 0
    return major << 16 | minor << 8 | patch


def major(version: int) -> int:
    """Major part of a packed version."""
    return (version >> 16) & 0xFF


def version_text(version: int) -> str:
    """``major.minor.patch`` for people."""
    return f"{major(version)}.{(version >> 8) & 0xFF}.{version & 0xFF}"


PACKAGE_VERSION: Final = "0.2.0"  # of this package; the build reads it here
CNC_VERSION: Final = semantic_version(0, 2, 0)
MARK_FILE_VERSION: Final = semantic_version(0, 3, 0)  # cluster mark files and node-state.dat
ARCHIVE_VERSION: Final = semantic_version(3, 1, 0)  # archive mark file and catalog
CLIENT_PROTOCOL_VERSION: Final = semantic_version(0, 3, 0)  # SessionConnectRequest, SessionEvent, BackupQuery
CONSENSUS_PROTOCOL_VERSION: Final = semantic_version(1, 0, 0)  # CanvassPosition, RequestVote
DEFAULT_APP_VERSION: Final = semantic_version(0, 0, 1)


def check_major(version: int, expected: int, offset: int, what: str) -> None:
    """Raise LogDamaged unless ``version``, found at ``offset`` of ``what``, has ``expected``'s major."""
    if version < 0 or version >> 24 or major(version) != major(expected):
        raise LogDamaged(
            None, offset, f"{what} version {version_text(version)} ({version}), expected {major(expected)}.x"
        )
