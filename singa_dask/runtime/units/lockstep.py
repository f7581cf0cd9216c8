"""Lockstep: where a worker is among those of its group, and how far ahead it may be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from singa_dask.layers.bridge import IN_FLIGHT, BridgeSrc
from singa_dask.net import NeuralNet

__all__ = ["Lockstep", "disconnected_workers"]

# more than a worker takes while another one is asked
RECENT = 64


def disconnected_workers(n_workers: int, bridges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the workers that bridges do not connect with the first, one for each component that they connect."""
    components = list(range(n_workers))
    for one, other in bridges:
        low, high = sorted((components[one], components[other]))
        components = [low if component == high else component for component in components]
    return sorted({*components} - {0})


class Lockstep:
    """Has a worker that no bridge connects with the first one, be it without layers, go on with it step by step.

    Parameters
    ----------
    net : NeuralNet
        The training net of the worker.

    Attributes
    ----------
    ahead : int
        Steps that one worker can be ahead of another, both in the midst of a step: one that waits for gradients of
        the others is not; bridges that none come back over, and this class, let it be some.
    progress : tuple of dict
        Where it was, the last steps where others may be at another one; read at any time.
    """

    def __init__(self, net: NeuralNet) -> None:
        worker, n_workers = net.context.worker, net.context.n_workers
        self.ahead = IN_FLIGHT * n_workers if net.is_partitioned else 0
        self.progress: tuple[dict[str, Any], ...] = ()
        self._exchange = net.context.exchange
        self._n_kept = RECENT if net.is_partitioned else 1
        self._n_steps = 0
        bridges = [
            (node.worker, node.peer)
            for layer, node in zip(net.all_layers, net.nodes, strict=True)
            if isinstance(layer, BridgeSrc) and node.worker is not None
        ]
        others = disconnected_workers(n_workers, bridges) if net.is_partitioned else []
        self._me = worker
        self._peers = others if worker == 0 else [0] if worker in others else []

    def record_progress(self, where: dict[str, Any]) -> None:
        """Note where the worker is, before a step or after the last one."""
        self.progress = (*self.progress, where)[-self._n_kept :]

    def step(self) -> None:
        """Begin a step, once those that could stay behind are near.

        Raises
        ------
        Aborted
            The job ended meanwhile.
        """
        for peer in self._peers:
            self._exchange.send(peer, f"step of {self._me}", (), ())
            if self._n_steps >= IN_FLIGHT:
                self._exchange.receive(f"step of {peer}")
        self._n_steps += 1
