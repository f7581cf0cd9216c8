"""Read the blocks of a store in the order of a sampler, and build the batches of a worker.

Batches
    `loader`: reads the batches of a worker ahead. `batch_reader`: builds several batches from blocks. `block_pool`:
    keeps blocks in one array, so that one call gathers their records.
Blocks
    `reader`: reads the blocks of a store. `look_ahead`: knows which blocks are needed next. `fetcher`: reads these
    blocks ahead. `bad_records`: decides what happens with bad records.
Planning
    `locality`: decides which worker reads which block. `memory_budget`: divides the memory of a loader.
"""

from singa_dask.data.loading.bad_records import BadPolicy
from singa_dask.data.loading.batch_reader import Batch
from singa_dask.data.loading.loader import Loader
from singa_dask.data.loading.locality import HostSpan, Survey, assign_by_host, host_names, same_host

__all__ = ["BadPolicy", "Batch", "HostSpan", "Loader", "Survey", "assign_by_host", "host_names", "same_host"]
