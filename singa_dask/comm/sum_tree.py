"""The binary tree over the workers of a group that defines the order of sums of gradients.

With the tree, a sum has the same bits whichever workers share a process, and in whatever order gradients arrive. The
tree has 2^d leaves, at least one for each worker; worker i is leaf 2^d + i. Node 1 is the root, and node n has the
children 2 n (left) and 2 n + 1 (right). The sum at a node is the sum at its left child plus the sum at its right child,
if both exist. A process that has all gradients below a node may compute the sum at this node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any


def leaf(worker: int, n_workers: int) -> int:
    """Return the leaf of a worker in a group of ``n_workers`` workers."""
    return (1 << (n_workers - 1).bit_length()) + worker


def complete_nodes(local: Collection[int], n_workers: int) -> dict[int, int]:
    """Return, for each local worker, the highest node above it that has only local workers below."""
    nodes = {leaf(worker, n_workers) for worker in local}
    # leaves without a worker count as local
    nodes |= {leaf(n_workers, n_workers) + i for i in range(leaf(0, n_workers) - n_workers)}
    for node in range(leaf(0, n_workers) - 1, 0, -1):
        if {2 * node, 2 * node + 1} <= nodes:
            nodes.add(node)
    tops = {}
    for worker in local:
        node = leaf(worker, n_workers)
        while node > 1 and node >> 1 in nodes:
            node >>= 1
        tops[worker] = node
    return tops


@lru_cache(1024)
def additions(nodes: tuple[int, ...], top: int = 1) -> tuple[tuple[int, int], ...]:
    """Return the pairs of nodes to add, in order. The sum at the second node is added to the first.

    Parameters
    ----------
    nodes : tuple of int
        Nodes below ``top`` that are not below each other; or ``top`` alone. The total ends up at the leftmost node.
    top : int
        Node whose sum is computed.
    """
    pairs = []
    climbed = {node: node for node in nodes}  # node of a sum -> node whose memory holds it
    while (node := max(climbed)) > top:
        kept = climbed.pop(node)
        left = climbed.pop(node - 1, None) if node % 2 else None
        if left is not None:
            pairs.append((left, kept))
            kept = left
        climbed[node >> 1] = kept
    return tuple(pairs)


def tree_sum(grads: Mapping[int, Any]) -> Any:
    """Return the sum of arrays, given by node. The sum is written to the memory of the leftmost array."""
    nodes = tuple(grads)
    pairs = additions(nodes)
    for left, right in pairs:
        total = grads[left]
        total += grads[right]
    return grads[pairs[-1][0] if pairs else nodes[0]]
