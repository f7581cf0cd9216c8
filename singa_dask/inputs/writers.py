"""Output layers that write the outputs of their sources to files. They have no gradients.

Each worker writes its rows to a separate file. With several workers, ``out.csv`` becomes ``out-0.csv``,
``out-1.csv``.
"""

from __future__ import annotations

import io
from contextlib import ExitStack
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from singa_dask import fs
from singa_dask.conf import Phase
from singa_dask.data.stores import STORES
from singa_dask.errors import ConfigError, Problem
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Traits


class Writer(Layer):
    """Base of layers that write files, one file per worker."""

    options_class = StoreConf
    traits = Traits(role="output")

    def setup(self) -> None:
        self.opened = ExitStack()
        if not self.options.path:
            raise ConfigError(Problem(("store_conf", "path"), f"{self.conf.type} needs a file to write to."))
        if self.options.augment is not None:
            raise ConfigError(Problem(("store_conf", "augment"), f"{self.conf.type} does not change records."))
        # the output of a writer needs no memory, because no layer reads it
        self.add_output(self.sources[0].shape, requires_grad=False, own_data=False)

    def urls(self) -> list[str]:
        """Return the URLs of the files of all workers."""
        if self.site.batch_shard.count == 1:
            return [self.options.path]
        suffix = PurePosixPath(self.options.path).suffix
        return [f"{self.options.path.removesuffix(suffix)}-{i}{suffix}" for i in range(self.site.batch_shard.count)]

    def url(self) -> str:
        """Return the URL of this worker's file."""
        return self.urls()[self.site.batch_shard.index]

    def close(self) -> None:
        self.opened.close()


@LAYERS.register()
class CSVOutput(Writer):
    """Write a line of text for each record: its label, if the source has labels, and its values with six decimals."""

    traits = Writer.traits.replace(consumes=(("data", "labels"),))
    file: Any = None

    def forward(self, phase: Phase) -> None:
        if self.file is None:
            opened = fs.open(self.url(), "wb", self.options.storage_options)
            self.file = self.opened.enter_context(opened)
        rows, labels = self.ops.to_host(self.rows()), self.sources[0].records.labels
        text = io.StringIO()
        line = ",".join(["%f"] * rows.shape[1]) + "\n"
        for i, row in enumerate(rows):
            text.write((f"{labels[i]}," if labels is not None else "") + line % tuple(row))
        self.file.write(text.getvalue().encode())


@LAYERS.register()
class RecordOutput(Writer):
    """Write the source as records with a field ``data``, to any kind of store.

    If the last source has labels, the records also have a field ``label``. ``store_conf.backend`` names the format; the
    default is kvfile. The file is written when the net is closed.
    """

    traits = Writer.traits.replace(n_sources=(1, 2), consumes=(("data", "labels"), "labels"))

    def setup(self) -> None:
        super().setup()
        self.batches: list[dict[str, np.ndarray[Any, Any]]] = []

    def forward(self, phase: Phase) -> None:
        batch = {"data": np.array(self.ops.to_host(self.sources[0].data), np.float32, order="C")}
        labels = self.sources[-1].records.labels
        if labels is not None:
            batch["label"] = np.array(labels, np.int32)
        self.batches.append(batch)

    def close(self) -> None:
        if self.batches:
            records = {name: np.concatenate([batch[name] for batch in self.batches]) for name in self.batches[0]}
            store = STORES.find(self.options.backend or "kvfile")
            store.write(self.url(), records, self.options.storage_options)
            self.batches = []
        super().close()
