"""Messages between units, and how they travel: no other room opens a socket or knows asyncio.

This room knows names, versions and arrays; it does not know Param, Layer or Dask's scheduler. Only `transport` needs
Dask, and is imported by its own name.
"""

from singa_dask.comm.message import Address, Message, pack
from singa_dask.comm.slicing import ParamSlice, partition_slices, slice_sizes, slice_table
from singa_dask.comm.stub import Share, Stub

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
]
