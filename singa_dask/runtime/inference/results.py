"""Combine the results of parts: metrics, and stores of records."""

from __future__ import annotations

import contextlib
import math
import posixpath
import secrets
from collections.abc import Iterator, Sequence

from singa_dask.data import STORES, Arrays, Store, fs, open_store
from singa_dask.data.convert.tasks import report
from singa_dask.data.stores.class_names import write_options
from singa_dask.errors import ConfigError, NumericError
from singa_dask.layers.metrics import add_totals
from singa_dask.runtime.inference.net import Measured
from singa_dask.runtime.inference.tasks import PartResult
from singa_dask.training.pass_metrics import PassMetrics


def merge_metrics(parts: Sequence[PartResult | Measured], of_pass: PassMetrics | None = None) -> dict[str, float]:
    """Return the mean of each metric over the batches of all parts, and those of the pass.

    Raises
    ------
    NumericError
        A mean is not finite.
    """
    totals = add_totals(each for done in parts for each in done.metrics)
    means = {name: total / count for name, (total, count) in totals.items() if count}
    for name, mean in means.items():
        if not math.isfinite(mean):
            raise NumericError(f"{name} is not finite. Check the checkpoint and the data.")
    if of_pass:
        for done in parts:
            of_pass.merge(done.state)
        means |= of_pass.values()
    return means


# -- records ---------------------------------------------------------------------------------------------------


def check_writes(backend: str) -> None:
    """Check that records can be written in a format.

    Raises
    ------
    ConfigError
        They cannot be.
    """
    # a class that cannot write inherits the method of the base class
    base = Store.write.__func__  # type: ignore[attr-defined]
    if getattr(STORES.find(backend).write, "__func__", None) is base:
        known = [name for name in STORES.names() if getattr(STORES.find(name).write, "__func__", None) is not base]
        raise ConfigError(f"records cannot be written as {backend}. Known: {', '.join(known)}.")


def url_of_layer(url: str, layer: str, several: bool) -> str:
    """Return the URL for the values of a layer: ``{layer}`` is replaced by its name, which else precedes the suffix."""
    if "{layer}" in url or not several:
        return url.replace("{layer}", layer)
    stem, suffix = posixpath.splitext(url)
    return f"{stem}-{layer}{suffix}"


@contextlib.contextmanager
def folder_beside(url: str) -> Iterator[str]:
    """Provide a directory for parts of the file at ``url``; it is removed when the context ends.

    Directories that a killed process has left are removed too.
    """
    parent, name = posixpath.split(url)
    fs.makedirs(parent)
    for left in fs.ls(parent):
        if left.startswith(f".{name}.parts-"):
            fs.remove_tree(fs.join(parent, left))
    # a random name, as a task of an earlier call may still be about to write
    folder = fs.join(parent, f".{name}.parts-{secrets.token_hex(4)}")
    try:
        yield folder
    finally:
        fs.remove_tree(folder)


def write_records(
    parts: Sequence[PartResult], layer: int, url: str, backend: str, class_names: Sequence[str] = ()
) -> int:
    """Write the outputs of a layer from all parts, in order, as one store; return the number of records."""
    counts = []

    def records() -> Iterator[Arrays]:
        for done in parts:
            for arrays in _arrays(done, layer):
                counts.append(len(arrays["data"]))
                yield arrays
                report(counts[-1])

    target = STORES.find(backend)
    target.write(url, records(), **write_options(target, class_names))
    return sum(counts)


def _arrays(done: PartResult, layer: int) -> Iterator[Arrays]:
    """Yield the outputs of a layer that a part has kept."""
    if done.arrays:
        yield done.arrays[layer]
        return
    with open_store(done.part.url(done.part.layers[layer]), "arrow") as store:
        for block in store.blocks:
            yield store.read_block(block.id)
