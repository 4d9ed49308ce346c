"""``python -m cluster`` is the ``cluster`` command."""

import sys

from cluster.errors import ExtraNeeded


def run_command() -> int:
    """Run the command; where the package alone is installed, say what is missing."""
    try:
        from cluster.cli.main import main
    except ExtraNeeded as error:
        print(error, file=sys.stderr)
        return 1
    return main()


if __name__ == "__main__":
    sys.exit(run_command())
