"""Records, from a URL to the batches of a worker.

Each room imports only rooms to its right: convert > loading > sampler > order > random > stores > codecs > types.
This package imports none of them.
"""

__all__: list[str] = []
