"""Lockstep: bounds how far the workers of a group can be apart."""

from __future__ import annotations

from collections.abc import Iterable

from singa_dask.layers.bridge import IN_FLIGHT, BridgeSrc
from singa_dask.net import NeuralNet

__all__ = ["Lockstep", "disconnected_workers"]


def disconnected_workers(n_workers: int, bridges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the first worker of each connected component, by bridges, that does not contain worker 0."""
    components = list(range(n_workers))
    for one, other in bridges:
        low, high = sorted((components[one], components[other]))
        components = [low if component == high else component for component in components]
    return sorted({*components} - {0})


class Lockstep:
    """Keeps a worker in lockstep with worker 0 if no bridge connects them, also if it has no layers.

    Parameters
    ----------
    net : NeuralNet
        The training net of the worker.

    Attributes
    ----------
    ahead : int
        Number of steps that one worker can be ahead of another: 0 if workers wait for each other's gradients in every
        step; more if bridges lead only one way, or connect only some of the workers.
    """

    def __init__(self, net: NeuralNet) -> None:
        worker, n_workers = net.context.worker, net.context.n_workers
        self.ahead = IN_FLIGHT * n_workers if net.is_partitioned else 0
        self._context = net.context
        self._n_steps = 0
        bridges = [
            (node.worker, node.peer)
            for layer, node in zip(net.all_layers, net.nodes, strict=True)
            if isinstance(layer, BridgeSrc) and node.worker is not None
        ]
        others = disconnected_workers(n_workers, bridges) if net.is_partitioned else []
        self._me = worker
        self._peers = others if worker == 0 else [0] if worker in others else []

    def step(self) -> None:
        """Begin a step, once the workers in lockstep are close enough.

        Raises
        ------
        Aborted
            The job ended meanwhile.
        """
        for peer in self._peers:
            self._context.bridges.send(peer, f"step of {self._me}", (), ())
            if self._n_steps >= IN_FLIGHT:
                self._context.bridges.receive(f"step of {peer}")
        self._n_steps += 1
