"""Open stores with the options in ``store_conf``, and read columns by position or by name."""

from __future__ import annotations

import contextlib

from singa_dask.data.stores import STORES, Store, detect, open_store
from singa_dask.data.stores.images.image_decoding import ImageOptions
from singa_dask.data.stores.tables.table_options import NAMING, NamedColumns
from singa_dask.data.tables.facts import TableFacts
from singa_dask.errors import DataError
from singa_dask.fs.patterns import is_pattern
from singa_dask.inputs.store_conf import StoreConf, as_single, options_of
from singa_dask.lazy import LazyModule

# most jobs read no table
csv_part = LazyModule("singa_dask.data.tables.files.csv_part")
table_files = LazyModule("singa_dask.data.stores.tables.table_files")

# keys of store_conf that are options of some formats, except for the options of CSVInput
FORMAT_KEYS = (*NAMING, "encoding", *ImageOptions.model_fields)


def open_records(conf: StoreConf, backend: str | None, facts: TableFacts | None = None) -> Store:
    """Open records with the options that ``store_conf`` sets for their format.

    If the training data was a table with named columns, ``facts`` describes its columns.

    Raises
    ------
    DataError
        The store cannot be opened, or its format does not have one of the options.
    """
    # job files of earlier versions may contain resize: []
    options = {
        key: as_single(key, getattr(conf, key))
        for key in FORMAT_KEYS
        if getattr(conf, key) not in (StoreConf.model_fields[key].default, [])
    }
    if not backend and (options or conf.user_conf) and not is_pattern(conf.path, conf.storage_options):
        backend = detect(conf.path, conf.storage_options)
    cls = STORES.find(backend) if backend else None
    if cls.is_named(conf.naming) if cls else conf.is_table:
        return _open_table(conf, cls, facts)
    for key in [] if cls is None else sorted(options.keys() - cls.option_names()):
        takers = [name for name in STORES.names() if key in STORES.find(name).option_names()]
        hint = " Convert with --resize, or set backend to one of these." if key in ImageOptions.model_fields else ""
        raise DataError(f"{conf.path}: {key} is for {', '.join(takers)}, not for {backend}.{hint}")
    options |= {"truncated": conf.on_error != "raise", **conf.user_conf}
    return open_store(conf.path, backend, options_of(conf), **options)


def _open_table(conf: StoreConf, cls: type[Store] | None, facts: TableFacts | None) -> Store:
    if facts is not None and not conf.features:
        # read only the columns of the training data, in the same order
        conf = conf.model_copy(update={"features": list(facts.features)})
    options = {
        **{key: getattr(conf, key) for key in NamedColumns.model_fields},
        "format": cls.table_format if cls else "",
        "facts": facts.to_dict() if facts else None,
        "split": conf.split and conf.split.model_dump(),
        "tolerant": conf.on_error != "raise",
    }
    return STORES.find("table")(conf.path, options_of(conf), **{**options, **conf.user_conf})


def open_by_name(conf: StoreConf, backend: str | None, facts: TableFacts, plain: Store | None) -> Store | None:
    """Open a store so that it has the columns that ``facts`` names.

    ``plain`` is the same store, opened by position of columns; None if this failed. The result is None if the columns
    have no names, or if the format cannot read columns by name.
    """
    options = options_of(conf)
    with contextlib.suppress(DataError):
        backend = backend or detect(conf.path, options)
    by_key = backend in ("jsonl", "tfrecord") and "features" not in conf.user_conf
    if backend and by_key and (plain is None or plain.table_facts is not None):
        return STORES.find(backend)(conf.path, options, features=facts.features, **conf.user_conf)
    kind = STORES.find(backend).table_format if backend and backend in STORES.names() else ""
    header: list[str] = []
    if kind == "csv" and conf.header is not False:
        with contextlib.suppress(DataError):
            part = csv_part.CsvPart(table_files.table_files(conf.path, options)[0].url, options, conf.separator)
            part.source.close()
            header = list(part.names)
    if not header and backend != "table" and (kind != "parquet" or plain is not None):
        return None
    labels = list(facts.labels) or [name for name in header[:1] if name not in facts.features]
    columns = {"features": list(facts.features), "label": labels if conf.has_label else []}
    return open_records(conf.model_copy(update=columns), kind, facts)
