"""In which order the layers of a worker take their turns, where some wait for other workers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence

from singa_dask.layers import Layer

__all__ = ["turns"]


def turns(
    layers: Sequence[Layer],
    before: Mapping[Layer, Sequence[Layer]],
    arrived: Callable[[Layer], bool],
    wait: Callable[[Callable[[], bool]], None],
) -> Iterator[Layer]:
    """Yield each layer after those before it, one that has to wait for another worker once it need not.

    Of those that can run the first of the list has its turn. So the workers of a group never wait for each other in a
    circle: what comes first in the whole net waits for nobody.

    Parameters
    ----------
    layers : sequence of Layer
        Each is computed before the next one is asked for.
    before : mapping of Layer to sequence of Layer
    arrived : callable
        (layer) -> whether what it waits for is there.
    wait : callable
        (condition) returns once the condition, which only another thread can change, holds.
    """
    place = {layer: i for i, layer in enumerate(layers)}
    open_edges = {layer: [other for other in before[layer] if other in place] for layer in layers}
    counts = [len(open_edges[layer]) for layer in layers]
    after: list[list[int]] = [[] for _ in layers]
    for layer, others in open_edges.items():
        for other in others:
            after[place[other]].append(place[layer])
    ready = [i for i, count in enumerate(counts) if not count]
    waiting: list[int] = []
    for _ in layers:
        i = _next(layers, ready, waiting, arrived, wait)
        yield layers[i]
        for other_place in after[i]:
            counts[other_place] -= 1
            if not counts[other_place]:
                heapq.heappush(ready, other_place)


def _next(
    layers: Sequence[Layer],
    ready: list[int],
    waiting: list[int],
    arrived: Callable[[Layer], bool],
    wait: Callable[[Callable[[], bool]], None],
) -> int:
    """Take the first layer that can run off the lists."""
    while True:
        for i in [i for i in waiting if arrived(layers[i])]:
            waiting.remove(i)
            heapq.heappush(ready, i)
        while ready:
            i = heapq.heappop(ready)
            if arrived(layers[i]):
                return i
            waiting.append(i)
        wait(lambda: any(arrived(layers[i]) for i in waiting))
