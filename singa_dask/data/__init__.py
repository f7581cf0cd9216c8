"""Read records from a URL, and turn them into the batches of a worker.

Each package imports only packages to its right: convert > loading > sampler > order > random > stores > codecs > types.
"""

__all__: list[str] = []
