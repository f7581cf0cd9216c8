"""Messages between units, and their transport. No other package opens a socket or uses asyncio.

This package handles names, versions and arrays; it does not know Param, Layer or Dask's scheduler. Only `transport`,
`secret` and `probe` need Dask; import them by their own names.

Names are imported on first use, so that importing this package loads no numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.comm.message import Address, Message, pack
    from singa_dask.comm.slicing import ParamSlice, partition_slices, slice_sizes, slice_table
    from singa_dask.comm.stub import Share, Stub
    from singa_dask.comm.sums import tree_sum

__all__ = [
    "Address",
    "Message",
    "ParamSlice",
    "Share",
    "Stub",
    "pack",
    "partition_slices",
    "slice_sizes",
    "slice_table",
    "tree_sum",
]

__getattr__ = lazy_names(
    __name__,
    {
        "message": ["Address", "Message", "pack"],
        "slicing": ["ParamSlice", "partition_slices", "slice_sizes", "slice_table"],
        "stub": ["Share", "Stub"],
        "sums": ["tree_sum"],
    },
)
