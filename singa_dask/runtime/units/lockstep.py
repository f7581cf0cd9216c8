"""Lockstep: keep workers of a group at about the same step if no bridges connect them."""

from __future__ import annotations

from collections.abc import Iterable

from singa_dask.layers.bridge import IN_FLIGHT, BridgeSrc
from singa_dask.net import NeuralNet


def disconnected_workers(n_workers: int, bridges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the lowest worker of each component of workers that no bridges connect to worker 0.

    A component is a set of workers that are connected by bridges, directly or through each other.
    """
    components = list(range(n_workers))
    for one, other in bridges:
        low, high = sorted((components[one], components[other]))
        components = [low if component == high else component for component in components]
    return sorted({*components} - {0})


class Lockstep:
    """Keeps a worker in lockstep with worker 0 if no bridges connect them; also a worker without layers.

    Attributes
    ----------
    ahead : int
        Maximum number of steps that one worker can be ahead of another. The number is 0 if the net is not partitioned,
        because each worker then waits for the gradients of all other workers in every step. The number is larger in a
        partitioned net, where bridges may be one-way or connect only some of the workers.
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
        """Begin a step, once no worker in lockstep is too far behind; raise Aborted if the job ends meanwhile."""
        for peer in self._peers:
            self._context.bridges.send(peer, f"step of {self._me}", (), ())
            if self._n_steps >= IN_FLIGHT:
                self._context.bridges.receive(f"step of {peer}")
        self._n_steps += 1
