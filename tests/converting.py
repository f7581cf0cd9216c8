"""Convert records with the arguments of a request and of `convert` in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_dask.data.convert import ConvertRequest
from singa_dask.data.convert import convert as convert_request

__all__ = ["convert"]

FIELDS = ("backend", "shuffle", "split", "limit", "shards", "mean", "reading", "writing")


def convert(kind: str, sources: Sequence[str], destination: str, **options: Any) -> dict[str, int]:
    """Return the number of records written to each URL; ``options`` are fields of the request, or keywords."""
    fields = {name: options.pop(name) for name in FIELDS if name in options}
    return convert_request(ConvertRequest(kind, sources, destination, **fields), **options)
