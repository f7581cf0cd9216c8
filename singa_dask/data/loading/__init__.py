"""Loading: reads the blocks of a store in the order of a sampler, and makes the batches of a worker."""

from singa_dask.data.loading.loader import Batch, Loader
from singa_dask.data.loading.reader import BadPolicy, HostSpan, Survey, assign_by_host, host_names, same_host

__all__ = ["BadPolicy", "Batch", "HostSpan", "Loader", "Survey", "assign_by_host", "host_names", "same_host"]
