"""Several clusters of one member each, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cluster.node.node import ClusterNode
from tests.node.processes import await_that, keys_of


@contextmanager
def running_clusters(folder: Path, names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Their endpoints by name, once each has a leader."""
    with ExitStack() as opened:
        nodes = {}
        for number, name in enumerate(names):
            keys = keys_of(folder / name, cluster_id=number)
            nodes[name] = opened.enter_context(ClusterNode.launch(**keys))
        for node in nodes.values():
            await_that(lambda node=node: node.is_leader, "it leads")
        yield {name: f"tcp:{node.config.tcp_ingress_of(node.config.member)}" for name, node in nodes.items()}
