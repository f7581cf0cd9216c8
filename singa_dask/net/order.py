"""The order of a net's nodes: sources before their readers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from singa_dask.errors import ConfigError
from singa_dask.net.nodes import Node

T = TypeVar("T", bound=Hashable)


def topological_order(nodes: Sequence[Node]) -> list[Node]:
    """Order nodes so that sources come first, else as they are listed.

    Raises
    ------
    ConfigError
        Some wait for each other.
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
    """Yield each item after those before it; one that is not ready gives way to others.

    Of those that can come next the first of the list comes. So the workers of a group never wait for each other in a
    cycle: what comes first in the whole net waits for nobody. Items in a cycle, and those after them, do not come.

    Parameters
    ----------
    items : sequence
        Each is done before the next one is asked for.
    before : mapping of item to sequence of items
    is_ready : callable
        (item) -> whether what it waits for, beside the items before it, is there.
    wait : callable
        (condition, items that are not ready) returns once the condition holds, which only another thread can change.
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
    """Take the first item that is ready off the lists."""
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
