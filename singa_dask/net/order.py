"""Sort nodes and layers so that sources come before their readers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from singa_dask.errors import ConfigError
from singa_dask.net.nodes import Node

T = TypeVar("T", bound=Hashable)


def topological_order(nodes: Sequence[Node]) -> list[Node]:
    """Return nodes sorted so that sources come before their readers; other nodes keep their order.

    Raises
    ------
    ConfigError
        Some nodes form a cycle.
    """
    by_name = {node.name: node for node in nodes}
    before = {node.name: [source.node for source in node.sources] for node in nodes}
    ordered = list(ready_order(list(by_name), before, lambda name: True, lambda condition, waiting: None))
    if len(ordered) < len(nodes):
        done = set(ordered)
        stuck = [node for node in nodes if node.name not in done]
        names = ", ".join(node.name for node in stuck)
        raise ConfigError(stuck[0].problem(f"these layers wait for each other: {names}.", ("srclayers",)))
    return [by_name[name] for name in ordered]


def ready_order(
    items: Sequence[T],
    before: Mapping[T, Sequence[T]],
    is_ready: Callable[[T], bool],
    wait: Callable[[Callable[[], bool], Sequence[T]], None],
) -> Iterator[T]:
    """Yield items in an order in which each item follows all items in its ``before``.

    Items that are not ready come later. Among the items that could be next, the earliest in ``items`` is chosen.
    Therefore workers of a group cannot wait for each other in a cycle: the earliest item of the whole net never has to
    wait. Items in a cycle of ``before``, and items that follow a cycle, are not yielded.

    Parameters
    ----------
    items : sequence
        The items. The caller must finish each item before it takes the next.
    before : mapping of item to sequence of items
        The items that each item must follow.
    is_ready : callable
        Takes an item; returns whether everything else that it waits for, e.g. a message, has arrived.
    wait : callable
        Called as ``wait(condition, waiting)`` if no item can be next; ``waiting`` are the items that are not ready.
        Returns once another thread has made ``condition()`` true.
    """
    place = {item: i for i, item in enumerate(items)}
    open_edges = {item: {place[other] for other in before[item] if other in place} for item in items}
    counts = [len(open_edges[item]) for item in items]
    after: list[list[int]] = [[] for _ in items]
    for item, others in open_edges.items():
        for other in others:
            after[other].append(place[item])
    ready = [i for i, count in enumerate(counts) if not count]
    waiting: list[int] = []
    while ready or waiting:
        i = _next(items, ready, waiting, is_ready, wait)
        yield items[i]
        for reader in after[i]:
            counts[reader] -= 1
            if not counts[reader]:
                heapq.heappush(ready, reader)


def _next(
    items: Sequence[T],
    ready: list[int],
    waiting: list[int],
    is_ready: Callable[[T], bool],
    wait: Callable[[Callable[[], bool], Sequence[T]], None],
) -> int:
    """Remove and return the index of the first item that is ready. If no item is ready, wait."""
    while True:
        for i in [i for i in waiting if is_ready(items[i])]:
            waiting.remove(i)
            heapq.heappush(ready, i)
        while ready:
            i = heapq.heappop(ready)
            if is_ready(items[i]):
                return i
            waiting.append(i)
        wait(lambda: any(is_ready(items[i]) for i in waiting), [items[i] for i in waiting])
