"""Loading: reads the blocks of a store in the order of a sampler, and makes the batches of a worker.

Batches
    `loader`: the batches of a worker, read ahead. `batch_reader`: makes several batches from blocks. `block_pool`:
    blocks whose records are gathered by one call.
Blocks
    `reader`: the blocks of a store. `look_ahead`: which blocks are needed next. `fetcher`: reads them ahead.
    `bad_records`: treatment of bad records.
Planning
    `locality`: which worker reads which block. `memory_budget`: memory of a loader.
"""

from singa_dask.data.loading.bad_records import BadPolicy
from singa_dask.data.loading.batch_reader import Batch
from singa_dask.data.loading.loader import Loader
from singa_dask.data.loading.locality import HostSpan, Survey, assign_by_host, host_names, same_host

__all__ = ["BadPolicy", "Batch", "HostSpan", "Loader", "Survey", "assign_by_host", "host_names", "same_host"]
