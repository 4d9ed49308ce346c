"""``python -m jobs.demo``: see :mod:`jobs.demo.story`."""

import argparse
import logging
import signal
import sys
from pathlib import Path

from jobs.command import run_main


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m jobs.demo",
        description="A year of real flights through three members, Spark and Delta, in a few minutes.",
        epilog="example:\n  python -m jobs.demo --seconds 30 --flights 100000",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--dir", default="build/demo", help="folder for all data (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=int, default=45, help="how long the year takes (default: %(default)s)"
    )
    parser.add_argument("--flights", type=int, help="send only the first FLIGHTS flights of the year")
    parser.add_argument(
        "--base-port", type=int, help="first port of the members (default: the first free of 9000, 9100, …)"
    )
    given = parser.parse_args()
    if given.seconds < 1 or (given.flights is not None and given.flights < 1):
        parser.error("--seconds and --flights are whole numbers of at least 1")

    from jobs.demo.story import Settings, run

    def interrupt(*_: object) -> None:
        logging.disable(logging.CRITICAL)  # or the bridge to the JVM reports that a call to it was cut off
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    settings = Settings(Path(given.dir), given.seconds, given.flights, given.base_port)
    if not run(settings):
        sys.exit(1)


if __name__ == "__main__":
    run_main(main)
