"""Messages between units, and their transport. No other package opens a socket or uses asyncio.

This package handles names, versions and arrays; it does not know Param, Layer or Dask's scheduler. Names are imported
on first use, so that importing this package loads no numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.comm.message import Address, Message, pack
    from singa_dask.comm.stub import ParamSlice, Share, Stub, slice_table, tree_sum

__all__ = ["Address", "Message", "ParamSlice", "Share", "Stub", "pack", "slice_table", "tree_sum"]

__getattr__ = lazy_names(
    __name__,
    {"message": ["Address", "Message", "pack"], "stub": ["ParamSlice", "Share", "Stub", "slice_table", "tree_sum"]},
)
