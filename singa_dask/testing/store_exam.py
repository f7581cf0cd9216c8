"""Checks of stores: blocks, fields, parts of blocks, and pickling."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from singa_dask.data.stores import STORES, Store
from singa_dask.data.stores.range_store import RangeStore
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError, PartError
from singa_dask.testing.examine import compare, examine

FIELDS = {"pixel": "uint8", "data": "float32", "label": "int32", "target": "float32", "weight": "float32"}
"""Fields that layers of singa-dask read -> dtype of their values. A user's parser may read other fields."""


def check_store(kind: str | type[Store], url: str, **options: Any) -> list[str]:
    """Check a store on records that it can read.

    Parameters
    ----------
    kind : str or type of Store
        The class of the store, or its ``backend`` in job files.
    url : str
        URL of records in the store's format, ideally with several blocks.
    options
        Options of the format.

    Returns
    -------
    list of str
        The checks that were not possible on this machine, with reasons.

    Raises
    ------
    PartError
        The store has mistakes. The message lists all of them, with advice.
    """
    cls = STORES.find(kind) if isinstance(kind, str) else kind
    opened: Callable[[str], Store] = partial(cls, **options)
    with opened(url) as store:
        checks = {name: partial(check, store) for name, check in STORE_ASPECTS.items()}
        return examine(cls.__name__, checks | {"a missing file": partial(check_missing, opened, url)})


def check_blocks(store: Store) -> None:
    """Check the ids and the numbers of records of blocks."""
    if [block.id for block in store.blocks] != list(range(len(store.blocks))):
        raise PartError("blocks have to be numbered 0, 1, 2, ... in the order of reading: Block(id, n, file, ...).")
    if not store.count or any(block.n < 1 for block in store.blocks):
        raise PartError("a block has no records. Leave empty ones out; raise DataError if there are none at all.")


def check_schema(store: Store) -> None:
    """Check that fields hold numbers, of the types that layers expect."""
    if not store.schema:
        raise PartError("the schema is empty. Set schema to a Field for each array that read_block returns.")
    actual = {name: str(field.dtype) for name, field in store.schema.items()}
    if wrong := {name: FIELDS[name] for name in actual if actual[name] != FIELDS.get(name, actual[name])}:
        raise PartError(f"the schema has { {name: actual[name] for name in wrong} }. Expected {wrong}.")
    if others := [name for name, field in store.schema.items() if getattr(field.dtype, "kind", "O") not in "biuf"]:
        types = {name: actual[name] for name in others}
        raise PartError(f"the schema has {types}. Expected np.dtype of numbers or bools; store text as its bytes.")


def check_reading(store: Store) -> None:
    """Check that blocks fit the schema, are the same at each read, and agree with their parts."""
    held = store.read_block(0)
    kept = {name: np.array(values) for name, values in held.items()}
    for block in [*store.blocks[:2], *store.blocks[-1:]]:
        arrays = {name: np.array(values) for name, values in store.read_block(block.id).items()}
        wanted = {name: ((block.n, *field.shape), field.dtype) for name, field in store.schema.items()}
        if (actual := {name: (values.shape, values.dtype) for name, values in arrays.items()}) != wanted:
            raise PartError(f"read_block({block.id}) returned {actual}. Expected {wanted}, of the schema and block.n.")
        rows = np.arange(block.n)[:: -max(block.n // 7, 1)]
        parts: list[tuple[str, Arrays, Any]] = [
            ("read_block, the second time", store.read_block(block.id), slice(None)),
            ("read_rows", store.read_rows(block.id, rows), rows),
        ]
        if "label" in arrays:
            parts.append(("read_labels", {"label": store.read_labels(block.id)}, slice(None)))
        for what, part, taken in parts:
            for name, values in part.items():
                compare(f"{name} from {what}", values, arrays[name][taken], 0, "It has to agree with read_block.")
    for name, values in held.items():
        remedy = "Return new memory each time, or a view of the file."
        compare(f"{name} of block 0 after other blocks were read", values, kept[name], 0, remedy)


def check_travel(store: Store) -> None:
    """Check that a pickled store opens the same records."""
    with pickle.loads(pickle.dumps(store)) as copy:
        if (copy.fingerprint, copy.schema) != (store.fingerprint, store.schema):
            remedy = "Pass all options to super().__init__(url, storage_options, **options)."
            raise PartError(f"a pickled store reads other records. {remedy}")
        for name, values in copy.read_block(0).items():
            compare(f"{name} of a pickled store", values, store.read_block(0)[name], 0, "Options are lost by pickling.")


def check_fetched(store: Store) -> None:
    """Check that blocks of a `RangeStore` are the same if they are fetched first and decoded later."""
    if not isinstance(store, RangeStore):
        if store.remote:
            raise PartError("only a RangeStore can be remote: extend it, and implement index and decode.")
        return
    for block in store.blocks:
        if [len(part) for part in store.fetch(block.id)] != [span.length for span in store.ranges(block.id)]:
            raise PartError(f"fetch({block.id}) does not return the bytes of ranges({block.id}).")
        for again in (False, True):
            for name, values in store.read_block(block.id, store.fetch(block.id, again)).items():
                compare(f"{name} of fetched bytes", values, store.read_block(block.id)[name], 0, "Correct decode().")


def check_missing(open_store: Callable[[str], Store], url: str) -> None:
    """Check that the error for a missing file names it."""
    nowhere = f"{url}.nowhere"
    try:
        open_store(nowhere).close()
    except DataError as error:
        if nowhere in str(error):
            return
        raise PartError(f"the error of a missing file does not name it: {error}") from error
    except OSError as error:
        raise PartError(
            f'a missing file raises {error!r}. Raise DataError(f"{{url}}: no such file.") from it.'
        ) from error
    raise PartError('a missing file raises no error. Raise DataError(f"{url}: no such file.") in __init__.')


STORE_ASPECTS: dict[str, Callable[[Store], None]] = {
    "blocks": check_blocks,
    "schema": check_schema,
    "reading": check_reading,
    "fetching": check_fetched,
    "travel": check_travel,
}
