"""RecordSource: the store of an input layer, opened and checked against the training data."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ClassVar

from singa_dask import fs
from singa_dask.conf import Phase
from singa_dask.data.loading import Survey
from singa_dask.data.stores import Store, open_store
from singa_dask.data.stores.label_match import LabelMatch, find_label, find_label_type
from singa_dask.data.stores.split_store import SplitStore
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.warn_once import warn_once
from singa_dask.errors import DataError
from singa_dask.inputs.input_context import InputContext
from singa_dask.inputs.open_records import open_by_name, open_records
from singa_dask.inputs.read_plan import ReadPlan
from singa_dask.inputs.record_shapes import stored_shape
from singa_dask.inputs.store_conf import StoreConf, options_of

logger = logging.getLogger(__name__)


class RecordSource:
    """The store of an input layer, with columns and classes matched to the training data.

    Parameters
    ----------
    conf : StoreConf
    layer : str
        Name of the layer in the job.
    context : InputContext
    check : callable
        Function that raises a `DataError` if the records of a store do not fit the layer. It is called after labels
        were matched with classes.
    label_column : str
        Name of the label to read, if records have several labels.

    Attributes
    ----------
    labels : LabelMatch
        Maps labels of the store to classes of the net. Set when the store was checked.
    n_records : int or None
        Number of records. Set by `count`, like the attributes below.
    n_history, n_later : int
        See `Store`.
    warnings : tuple of str
        `Store.warnings`.
    """

    default_backend: ClassVar[str | None] = None

    def __init__(
        self,
        conf: StoreConf,
        layer: str,
        context: InputContext,
        check: Callable[[Store], None],
        label_column: str = "",
    ) -> None:
        self.conf, self.layer, self.context, self.label_column = conf, layer, context, label_column
        self._check = check
        self.labels = LabelMatch()
        self.n_records: int | None = None
        self.n_history = self.n_later = 0
        self.warnings: tuple[str, ...] = ()

    @property
    def _learns(self) -> bool:
        """Whether the layer reads the training data."""
        return self.context.phase == Phase.TRAIN

    def open(self) -> Store:
        """Open the store. Named columns are read in the order of the training data."""
        conf, backend = self.conf, self.conf.backend or self.default_backend
        # columns of the training data, or None if this layer reads the training data
        facts = self.context.knowledge.table_of(self.layer, self._learns)
        if conf.is_table:
            opened = open_records(conf, backend, facts)
        elif facts is None:
            opened = self.open_plain(backend)
        else:
            opened = self._open_like(facts, backend)
        # tables apply the split themselves, because their statistics cover only one part; wrap stores without this
        # option
        return opened if conf.split is None or "split" in opened.option_names() else SplitStore(opened, conf.split)

    def open_plain(self, backend: str | None) -> Store:
        """Open the store without using names of columns."""
        return open_records(self.conf, backend)

    def _open_like(self, facts: TableFacts, backend: str | None) -> Store:
        """Open the store by position of columns, or by name if their order differs from ``facts``.

        Columns that the net does not read are ignored. Raises a `DataError` if a column is missing.
        """
        conf, store, failure = self.conf, None, DataError(self.conf.path)
        try:
            store = self.open_plain(backend)
        except DataError as error:
            failure = error
        if store is not None and store.table_facts is not None and store.table_facts.names == facts.names:
            return store
        named = open_by_name(conf, backend, facts, store)
        if store is None:
            if named is None:
                raise failure
            return named
        if named is not None:
            store.close()
        elif store.table_facts is None and "data" in store.schema:
            said = "the columns have no names, so they are read in the order of the training data"
            warn_once(logger, f"{conf.path}: {said}")
        return named or store

    def open_checked(self) -> Store:
        """Open the store, and check it against the job and the training data.

        Raises
        ------
        DataError
            The store cannot be opened, or its records do not fit.
        """
        store, known = self.open(), self.context.knowledge
        try:
            self.labels = known.match(self.layer, store, self._learns, self.conf.needs_label, self.label_column)
            known.match_table(self.layer, store, self._learns)
            self._check(store)
            if self.conf.standardise:
                store.widen()
        except BaseException:
            store.close()
            raise
        return store

    def count(self, plan: ReadPlan) -> int:
        """Open the store if it was not counted before, and return its number of records.

        Raises the errors of `open_checked`, and a `DataError` if the records that ``plan`` reads need more memory
        than this process has.
        """
        if self.n_records is None:
            with self.open_checked() as store:
                plan.check_memory(store)
                self.n_records, self.n_history, self.n_later = store.count, store.n_history, store.n_later
                self.warnings = store.warnings()
        return self.n_records

    def survey(self) -> Survey | None:
        """Return the hosts of the store's blocks; None if its filesystem reports no hosts.

        Raises the errors of `open_checked`.
        """
        if not fs.has_locations(self.conf.path, self.conf.storage_options):
            return None
        with self.open_checked() as store:
            return Survey.of(store)

    def read_class_names(self) -> tuple[tuple[str, ...], str]:
        """Open the store; return the names of its classes, and the type of its labels."""
        with self.open() as store:
            self.context.knowledge.match_table(self.layer, store, learns=True)
            return find_label(store, self.label_column)[1], find_label_type(store, self.label_column)


class LinesSource(RecordSource):
    """Lines of numbers, as `CSVInput` reads them."""

    default_backend = "csv"

    def open_plain(self, backend: str | None) -> Store:
        conf = self.conf
        return open_store(
            conf.path,
            backend,
            options_of(conf),
            truncated=conf.on_error != "raise",
            separator=conf.separator,
            has_label=conf.has_label,
            shape=stored_shape(conf),
            header=conf.header,
        )
