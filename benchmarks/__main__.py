"""Take the figures named on the command line, or all of them."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import time
from pathlib import Path

from benchmarks.options import Options
from benchmarks.processes import idle_share

BENCHMARKS = {
    "kernels": "the kernels on runs of frames, and frames to Arrow",
    "disk": "ways to make the end of a log durable, alone and three at once",
    "members": "a member's start, its idle cost and its memory",
    "capacity": "what a session, lane, timer, group, reader and message take of a member",
    "cluster": "three members: committed and echoed messages per second, round trips",
    "peers": "one message alone and 1,000 in flight, beside Aeron, NATS JetStream and the floor, in turns",
    "cores": "the same on one core and on more: what a message costs each process",
    "profile": "where a member's time goes, by perf, with the names of compiled functions",
    "shapes": "throughput by size, members, batches and TLS, beside real Aeron's",
    "sessions": "plain, supervised and TLS clients, in turns",
    "small_disk": "a disk of 1 GiB for each member, written at full speed: --seconds 3600 for an hour",
    "services": "a service inline and in a process of its own: replays, clients' messages, round trips",
    "watching": "what metrics and twenty pages of `cluster live` cost: throughput, beside nobody's",
    "checksums": "what CRC-32C of frames costs: throughput and starts, beside none",
    "failover": "fifty SIGKILLs of the leader under load: the gap without a commit, messages lost",
    "transfer": "thirty transfers of the leadership under load: the gap without a commit",
    "recovery": "from start to ready, by the length of the log",
    "snapshots": "for how long a snapshot holds the ingress, by the size of a service's state",
    "wiped": "an empty directory filled again while the cluster works, beside the disk alone",
    "spark_source": "the Log through Spark, beside a synthetic source and Kafka's",
    "spark_clusters": "the same rows out of one cluster, two and four, in one query",
    "spark_latency": "from an offer to the row in foreachBatch, and the parts of a trigger",
    "spark_sink": "rows from Spark into three members, each once and at least once",
    "sql_latency": "from the append of a message to the SQL of DuckDB and polars that counts it",
    "aeron": "our client of Aeron's media beside Java's, and a real cluster to Spark's rows",
    "delta": "python -m jobs.log_to_delta on a log of two million entries",
}
RESULTS = Path(__file__).parent / "results"
IDLE_SHARE_MIN = 0.9


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure, and write benchmarks/results/.",
        epilog="benchmarks:\n"
        + "".join(f"  {name:<14} {text}\n" for name, text in BENCHMARKS.items())
        + "\nExample:\n  python -m benchmarks cluster --seconds 5 --peers ../peers",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="benchmark", help="which to take; all by default")
    parser.add_argument("--peers", type=Path, help="folder with the peers' harnesses (nats/run and others)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measured run (default: 8)")
    parser.add_argument("--rounds", type=int, default=3, help="alternating runs of both sides (default: 3)")
    parser.add_argument("--busy", action="store_true", help="measure although other processes are at work")
    parser.add_argument("--no-write", action="store_true", help="print only")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    options = Options(
        peers=arguments.peers,
        seconds=arguments.seconds,
        rounds=arguments.rounds,
        plots=None if arguments.no_write else RESULTS,
    )
    RESULTS.mkdir(exist_ok=True)

    for name in arguments.names or BENCHMARKS:
        idle = idle_share()
        if idle < IDLE_SHARE_MIN and not arguments.busy:
            print(
                f"{name}: other processes use the machine, its cores are idle for {idle:.0%} of the time and "
                f"{IDLE_SHARE_MIN:.0%} is the least; end them, or take figures of a busy machine by --busy",
                file=sys.stderr,
            )
            return 1
        figures = [_machine(idle)]
        for figure in importlib.import_module(f"benchmarks.{name}").run(options):
            print(json.dumps(figure), flush=True)
            figures.append(figure)
        if not arguments.no_write:
            (RESULTS / f"{name}.jsonl").write_text("".join(json.dumps(figure) + "\n" for figure in figures))
    return 0


def _machine(idle: float) -> dict[str, object]:
    return {
        "taken": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "idle_share_before": round(idle, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
