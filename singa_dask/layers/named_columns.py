"""Columns by name: records of other files than the training data, with their columns in the order of these."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable

from singa_dask.data import STORES, Store, detect, fs
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.stores.block_sizes import BLOCK_BYTES
from singa_dask.data.stores.jsonl import JsonLinesStore
from singa_dask.data.stores.table_csv import CsvPart
from singa_dask.data.stores.table_part import table_files
from singa_dask.errors import DataError
from singa_dask.layers.records import StoreConf, open_records

logger = logging.getLogger(__name__)


def open_named(
    conf: StoreConf,
    url: str,
    backend: str | None,
    storage_options: fs.Options,
    facts: TableFacts | None,
    plain: Callable[[], Store],
) -> Store:
    """Open records as ``plain`` does, or if they have named columns in another order, by the names of ``facts``.

    Columns that the net does not read are passed over. Records without names are taken by position.

    Raises
    ------
    DataError
        They cannot be opened, or lack a column.
    """
    if facts is None:
        return plain()
    store, failure = None, DataError(url)
    try:
        store = plain()
    except DataError as error:
        failure = error
    if store is not None and store.table_facts is not None and store.table_facts.names == facts.names:
        return store
    with contextlib.suppress(DataError):
        backend = backend or detect(url, storage_options)
    named = _open_by_name(conf, url, backend or "", storage_options, facts, store)
    if store is None:
        if named is None:
            raise failure
        return named
    if named is not None:
        store.close()
    elif store.table_facts is None and "data" in store.schema:
        _warn_once(url)
    return named or store


@functools.lru_cache(256)
def _warn_once(url: str) -> None:
    logger.warning("%s: no names of columns, so they are taken in the order of the training data", url)


def _open_by_name(
    conf: StoreConf, url: str, backend: str, storage_options: fs.Options, facts: TableFacts, plain: Store | None
) -> Store | None:
    """Open the columns of ``facts``; None if the records have no names, or the format reads no columns by name.

    ``plain`` are the records by position, None if they cannot be opened so.
    """
    if backend == "jsonl" and "features" not in conf.user_conf and (plain is None or plain.table_facts is not None):
        return JsonLinesStore(url, storage_options, features=facts.features, **conf.user_conf)
    kind = STORES.find(backend).table_format if backend in STORES.names() else ""
    names: tuple[str, ...] = ()
    if kind == "csv" and conf.header is not False:
        names = _header(url, storage_options, conf.separator)
    if not names and (kind != "parquet" or plain is not None):
        return None
    labels = list(facts.labels) or [name for name in names[:1] if name not in facts.features]
    columns = {"features": list(facts.features), "label": labels if conf.has_label else []}
    return open_records(conf.model_copy(update=columns), url, kind, storage_options, lambda: facts)


def _header(url: str, storage_options: fs.Options, separator: str) -> tuple[str, ...]:
    """Return the names in the first line of a CSV file; empty if it has none."""
    with contextlib.suppress(DataError):
        part = CsvPart(table_files(url, storage_options)[0].url, storage_options, separator, BLOCK_BYTES, False)
        part.source.close()
        return tuple(part.names)
    return ()
