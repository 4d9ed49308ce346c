"""``python -m cluster`` is the ``cluster`` command."""

import sys

from cluster.cli.main import main

sys.exit(main())
