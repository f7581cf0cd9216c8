"""Output layers: scores that are counted, sorted or written down. None has a gradient.

Files are written by every worker for its own rows: with several, ``out.csv`` becomes ``out-0.csv``, ``out-1.csv``.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from singa_dask.conf import ArgSortConf, LayerConf, Phase, StoreConf
from singa_dask.data import STORES, fs
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Context, Feature, Layer

__all__ = ["Accuracy", "ArgSort", "CSVOutput", "RecordOutput", "Writer"]


@LAYERS.register()
class ArgSort(Layer):
    """Columns of the ``argsort_conf.topk`` highest scores of each row, best first: (N, topk), as floats.

    Of equal scores the higher column comes first.
    """

    block = ArgSortConf
    is_output = True
    over_time = True
    repeats = True

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        self.topk, width = conf.block(ArgSortConf).topk, sources[0].size
        if self.topk > width:
            message = f"expected at most {width}, the values of a record, got {self.topk}."
            raise ConfigError(Problem(("argsort_conf", "topk"), message))
        self.feature((sources[0].shape[0], self.topk), wants_grad=False, dtype=self.context.param_dtype)

    def compute_feature(self, phase: Phase) -> None:
        self.ops.top(self.rows(), self.topk, out=self.features[0].data)


@LAYERS.register()
class Accuracy(ArgSort):
    """ArgSort that also adds the share of rows with their label among the first to the figure "accuracy".

    Sources: scores, labels.
    """

    n_sources = (2, 2)
    reads = ("data", "labels")
    figures = ("accuracy",)
    repeats = True

    def prepare(self, phase: Phase) -> None:
        self.labels(1, self.sources[0].size)

    def compute_feature(self, phase: Phase) -> None:
        super().compute_feature(phase)
        scores = self.rows()
        labels = self.sources[1].labels
        self.add_metric("accuracy", self.ops.count_in_top(scores, labels, self.topk), n=len(scores))


class Writer(Layer):
    """What layers that write files share: where to, and which labels."""

    block = StoreConf
    is_output = True

    def __init__(self, conf: LayerConf, context: Context) -> None:
        super().__init__(conf, context)
        self.opened = ExitStack()

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        self.store = conf.block(StoreConf)
        if not self.store.path:
            raise ConfigError(Problem(("store_conf", "path"), f"{conf.type} needs to know where to write."))
        self.feature(sources[0].shape, wants_grad=False)

    def allocate(self) -> None:
        """Allocate nothing: nobody reads a writer."""

    def urls(self) -> list[str]:
        """Return where each worker writes."""
        if self.n_row_parts == 1:
            return [self.store.path]
        suffix = PurePosixPath(self.store.path).suffix
        return [f"{self.store.path.removesuffix(suffix)}-{i}{suffix}" for i in range(self.n_row_parts)]

    def url(self) -> str:
        """Return where this worker writes."""
        return self.urls()[self.row_part]

    def close(self) -> None:
        self.opened.close()


@LAYERS.register()
class CSVOutput(Writer):
    """One line a record: its label, if the source has labels, and the values with six decimals."""

    reads = (("data", "labels"),)

    def __init__(self, conf: LayerConf, context: Context) -> None:
        super().__init__(conf, context)
        self.file: Any = None

    def compute_feature(self, phase: Phase) -> None:
        if self.file is None:
            opened = fs.open(self.url(), "wb", self.store.storage_options)
            self.file = self.opened.enter_context(opened)
        rows, labels = self.ops.to_host(self.rows()), self.sources[0].labels
        text = io.StringIO()
        line = ",".join(["%f"] * rows.shape[1]) + "\n"
        for i, row in enumerate(rows):
            text.write((f"{labels[i]}," if labels is not None else "") + line % tuple(row))
        self.file.write(text.getvalue().encode())


@LAYERS.register()
class RecordOutput(Writer):
    """Records of ``data``, and of ``label`` where the second source (or else the first) has labels, in any store.

    ``store_conf.backend`` names the format, kvfile when it does not; the file is written when the net is closed.
    """

    n_sources = (1, 2)
    reads = (("data", "labels"), "labels")

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        super().setup(conf, sources, ops)
        self.batches: list[dict[str, np.ndarray[Any, Any]]] = []

    def compute_feature(self, phase: Phase) -> None:
        batch = {"data": np.array(self.ops.to_host(self.sources[0].data), np.float32, order="C")}
        labels = self.sources[-1].labels
        if labels is not None:
            batch["label"] = np.array(labels, np.int32)
        self.batches.append(batch)

    def close(self) -> None:
        if self.batches:
            records = {name: np.concatenate([batch[name] for batch in self.batches]) for name in self.batches[0]}
            store = STORES.find(self.store.backend or "kvfile")
            store.write(self.url(), records, self.store.storage_options)
            self.batches = []
        super().close()
