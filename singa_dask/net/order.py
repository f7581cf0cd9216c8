"""Orders of nodes and layers: sources before their readers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from singa_dask.errors import ConfigError
from singa_dask.net.nodes import Node

T = TypeVar("T", bound=Hashable)


def topological_order(nodes: Sequence[Node]) -> list[Node]:
    """Return nodes with sources before their readers. Otherwise the order stays the same.

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
    """Yield items so that each one follows all items in its ``before``.

    Items that are not ready come later. Of all possible items the next one is the first in ``items``. This keeps the
    workers of a group from waiting for each other in a cycle, because the first item of the whole net never has to
    wait. Items in a cycle, and items after a cycle, are not yielded.

    Parameters
    ----------
    items : sequence
        The items. The caller must finish each one before it takes the next.
    before : mapping of item to sequence of items
        The items that each item has to follow.
    is_ready : callable
        Returns whether everything else that an item waits for has arrived.
    wait : callable
        Called as ``wait(condition, waiting)``, with the items that are not ready. Returns once another thread has made
        ``condition()`` true.
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
    """Remove and return the first item that is ready."""
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
