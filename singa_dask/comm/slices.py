"""Slices: divide params into ranges, and distribute these evenly over servers.

After SINGA's ``Param::Slice`` and ``PartitionSlices`` (src/utils/common.cc, src/stub.cc), with one fix: no slice is
assigned to a server that does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

MAX_SLICE = 1 << 20
"""Maximum number of values in a slice (4 MiB of float32). A param has several slices, so that one slice is sent while
the next is updated."""


class ParamSlice(NamedTuple):
    """A contiguous range of one logical param.

    Attributes
    ----------
    id : int
        Index in the table of all slices of the job.
    param : int
        Index of the param among the unique params of the net.
    start, stop : int
        Range of the slice in the flattened param.
    server : int
        Index of the server that holds the slice, the same in every server group.
    master : int
        Server group that is the master of the slice: all other server groups synchronise their values with its values.
    """

    id: int
    param: int
    start: int
    stop: int
    server: int
    master: int

    @property
    def size(self) -> int:
        """Number of values in the slice."""
        return self.stop - self.start


def slice_sizes(n: int, sizes: Sequence[int]) -> list[list[int]]:
    """Divide params into slices that fill ``n`` boxes, each with about the same number of values.

    Parameters
    ----------
    n : int
        Number of boxes. For 0, the result is an empty list.
    sizes : sequence of int
        Number of values of each param, in net order.

    Returns
    -------
    list of list of int
        Sizes of the slices of each param.
    """
    if n == 0:
        return []
    average = sum(sizes) // n + sum(sizes) % n
    slack = average // 10
    capacity = average
    table = []
    for size in sizes:
        pieces = []
        while size > 0:
            if capacity >= size:
                pieces.append(size)
                capacity -= size
                size = 0
            elif capacity + slack >= size:
                pieces.append(size)
                capacity = size = 0
            elif capacity >= slack and capacity > 0:
                pieces.append(capacity)
                size -= capacity
                capacity = average
            else:
                capacity = average
        table.append(pieces)
    return table


def partition_slices(n: int, sizes: Sequence[int]) -> list[int]:
    """Assign slices of these sizes, in order, to ``n`` boxes of about equal total size.

    Return the box of each.
    """
    average = sum(sizes) // n + sum(sizes) % n
    slack = average // 10
    room, box = average, 0
    boxes = []
    for size in sizes:
        if room + slack < size and room < average:
            box, room = min(box + 1, n - 1), average
        boxes.append(box)
        room = max(room - size, 0)
    return boxes


def slice_table(sizes: Sequence[int], n_server_groups: int, n_servers: int) -> list[ParamSlice]:
    """Divide all params of a job into slices, and assign each slice to a server.

    Parameters
    ----------
    sizes : sequence of int
        Number of values of each unique param, in net order.
    n_server_groups, n_servers : int
        Number of server groups, and of servers in a group.
    """
    per_param = slice_sizes(math.lcm(n_server_groups, n_servers), sizes)
    coarse = [size for pieces in per_param for size in pieces]
    servers = partition_slices(n_servers, coarse)
    masters = partition_slices(n_server_groups, coarse)
    table: list[ParamSlice] = []
    index = 0
    for param, pieces in enumerate(per_param):
        start = 0
        for size in pieces:
            for low in range(start, start + size, MAX_SLICE):
                high = min(low + MAX_SLICE, start + size)
                table.append(ParamSlice(len(table), param, low, high, servers[index], masters[index]))
            start += size
            index += 1
    return table
