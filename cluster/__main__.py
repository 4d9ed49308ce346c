"""``python -m cluster`` is the ``cluster`` command."""

import sys

from cluster.errors import ExtraNeeded


def main() -> int:
    """Run the command; where the package alone is installed, say what is missing."""
    try:
        from cluster.cli.main import main as run
    except ExtraNeeded as error:
        print(error, file=sys.stderr)
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
