"""The partitions of Dask collections as lazy values. Tasks that partitions share are computed once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from dask._task_spec import Task, TaskRef
from dask.base import is_dask_collection
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from singa_dask.comm.remote_import import Guarded


def parts_of(collection: Any) -> list[Any]:
    """Return the partitions of a frame, a column, or an array. Partitions consist of whole records.

    Tasks are not fused, because fused partitions would compute shared tasks several times.
    """
    if hasattr(collection, "chunks"):
        return list(rows_together(collection).to_delayed(optimize_graph=False).reshape(-1))
    return list(collection.optimize(fuse=False).to_delayed(optimize_graph=False))


def rows_together(array: Any) -> Any:
    """Return a Dask array with the same values, whose chunks consist of whole records."""
    if not is_dask_collection(array):
        # ``array`` is a Dask array, so the module dask.array is loaded already
        import dask.array

        return dask.array.from_array(array, chunks=-1)  # type: ignore[no-untyped-call]
    is_whole = max(map(len, array.chunks[1:]), default=1) == 1
    return array if is_whole else array.rechunk(dict.fromkeys(range(1, array.ndim), -1))


def map_parts(function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    """Apply a function lazily to the partitions of collections, as `map` does.

    Parameters
    ----------
    function : callable
        Takes one partition of each collection. It must be picklable.
    *columns : sequence of Delayed
        Partitions of each collection.
    """
    name, graph = _layer(Guarded(function), columns)
    return [Delayed(key, graph, layer=name) for key in graph.layers[name]]  # type: ignore[no-untyped-call]


def array_of(parts: Sequence[Any], lengths: tuple[float, ...], meta: Any) -> Any:
    """Build a Dask array from the partitions of an array, a frame or a column.

    Parameters
    ----------
    parts : sequence of Delayed
    lengths : tuple of float
        Number of records in each partition; NaN if unknown.
    meta : array or frame
        An empty partition.
    """
    # the partitions are Dask objects, so dask.array is loaded already
    from dask.array import Array

    empty = np.asarray(meta)
    name, graph = _layer(np.asarray, [parts], (0,) * (empty.ndim - 1))
    return Array(graph, name, (lengths, *((n,) for n in empty.shape[1:])), empty.dtype)  # type: ignore[no-untyped-call]


def _layer(
    function: Callable[..., Any], columns: Sequence[Sequence[Any]], place: tuple[int, ...] = ()
) -> tuple[str, HighLevelGraph]:
    # use one graph layer for all partitions, because Dask traverses the graph once for each layer
    name = f"{getattr(function, '__name__', 'part')}-{uuid.uuid4().hex}"
    tasks: dict[Any, Task] = {}
    for index, of in enumerate(zip(*columns, strict=False)):
        key = (name, index, *place)
        tasks[key] = Task(key, function, *(TaskRef(part.key) for part in of))
    return name, HighLevelGraph.from_collections(name, tasks, [column[0] for column in columns])
