"""Open the store that a command line describes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from singa_dask.cli.reading import Reading
from singa_dask.data.codecs.labels import labels_among
from singa_dask.data.codecs.tokens import MAX_LENGTH
from singa_dask.data.stores import STORES, Store, detect, open_store
from singa_dask.data.stores.label_match import check_label
from singa_dask.data.stores.shards import shard_urls
from singa_dask.data.stores.tables.table_files import format_of, table_files
from singa_dask.data.stores.tables.table_options import NAMING
from singa_dask.data.tables.files.open_parts import open_part
from singa_dask.errors import ConfigError, DataError
from singa_dask.fs.patterns import is_pattern
from singa_dask.wording import suggest


def described(url: str, reading: Reading) -> Store:
    """Open a store with `opened`, or as a table with named columns if its columns do not fit the format."""
    try:
        store = opened(url, reading)
        store.read_block(0)
        return store
    except DataError as error:
        backend, _ = store_format(url, reading)
        table_format = STORES.find(backend).table_format if backend else ""
        is_damaged = table_format == "jsonl" and not error.wants("features")
        if not table_format or reading.shape or is_damaged:
            raise
        try:
            return _table(url, dataclasses.replace(reading, backend="table"))
        except (ConfigError, DataError) as other:
            if table_format != "csv" or isinstance(other, ConfigError):
                raise error from None
            fault = str(other).removeprefix(f"{url}: ")
            if str(error).endswith(fault):
                raise error from None
            raise DataError(f"{error} It is not a table with named columns either: {fault}") from None


def _table(url: str, reading: Reading) -> Store:
    """Open a table; if this fails, open it without labels.

    If it has no columns of numbers, its texts are the features.
    """
    try:
        store = opened(url, reading)
        store.read_block(0)
        return store
    except DataError as error:
        options = {**reading.options, "has_label": False}
        if error.wants("features") and "features" not in options:
            files = table_files(url, reading.storage_options)
            kinds = open_part(files[0].url, format_of(files, reading.storage_options), reading.storage_options).kinds
            label = labels_among(list(kinds))
            names = [name for name, kind in kinds.items() if kind == "string" and name not in label]
            texts = {"features": names, "texts": {name: {"length": MAX_LENGTH} for name in names}}
            options = {"label": label, **reading.options, **texts}
        return opened(url, dataclasses.replace(reading, options=options))


def opened(url: str, reading: Reading) -> Store:
    """Open a store.

    Raises
    ------
    ConfigError
        The format of the store does not take one of the options.
    DataError
        The store cannot be opened, or its records do not fit the given shape.
    """
    backend, options = store_format(url, reading)
    try:
        store = open_store(url, backend, reading.storage_options, **options)
    except (TypeError, ValueError) as error:
        if isinstance(error, (ConfigError, DataError)) or not options:
            raise
        shown = ", ".join(f"{name}={value}" for name, value in options.items())
        raise ConfigError(f"{url}: {shown}: {error}. Expected other values of the options.") from error
    try:
        check_label(store, options.get("label", ""))
    except DataError:
        store.close()
        raise
    shape = reading.shape
    sizes = [math.prod(field.shape) for name, field in store.schema.items() if name != "label"]
    if shape and "shape" not in options and math.prod(shape) not in sizes:
        store.close()
        raise DataError(f"{url}: records of {sizes[0]} values. Expected {math.prod(shape)}, as --shape says.")
    return store


def store_format(url: str, reading: Reading) -> tuple[str | None, dict[str, Any]]:
    """Return the format of a store, None if unknown, and its options, including the shape if the format takes it.

    Raises
    ------
    ConfigError
        The format does not take one of the options.
    """
    backend, options = reading.backend or _detected(url, reading), reading.options
    if not backend:
        return None, options
    backend, options = by_columns(backend, options)
    store = STORES.find(backend)
    known = store.option_names()
    unknown = sorted(options.keys() - known) if store.options_class else []
    if unknown:
        hint = suggest(unknown[0], known) if known else "It takes none."
        raise ConfigError(f"{url}: stores of format {backend} take no option {unknown[0]!r}. {hint}")
    return backend, {**options, "shape": reading.shape} if reading.shape and "shape" in known else options


def by_columns(kind: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the format and its options; the format is ``table`` if an option names columns."""
    store = STORES.get(kind)
    if kind == "table":
        return kind, _several(options)
    if store and store.is_named(options.keys() & {*NAMING, "encoding", "charset", "quotes"}):
        return "table", {**_several(options), "format": store.table_format}
    if len(options.get("features", ())) == 1:
        # an option with a single key may receive all features
        return kind, {**options, "features": options["features"][0]}
    return kind, options


def _several(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a table, with ``label`` split at commas."""
    label = options.get("label")
    return {**options, "label": label.split(",")} if isinstance(label, str) and "," in label else options


def _detected(url: str, reading: Reading) -> str | None:
    file = shard_urls(url, reading.storage_options)[0] if is_pattern(url, reading.storage_options) else url
    return detect(file, reading.storage_options)
