"""Test, predict and extract for records in stores, computed by any number of workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask.conf import JobFile, Phase
from singa_dask.data import fs
from singa_dask.data.convert import backend_of
from singa_dask.errors import ConfigError
from singa_dask.jobs.inference import Computation, Inference, Records, Workers
from singa_dask.modules import Source
from singa_dask.net import NeuralNet
from singa_dask.runtime.inference.job import (
    classifier,
    has_values,
    is_class_loss,
    label_layer,
    predicted_layer,
    target_names,
)
from singa_dask.runtime.inference.predictions import Predicted, label_rows, prediction_rows
from singa_dask.runtime.inference.results import check_writes, folder_beside, merge_metrics, url_of_layer, write_records
from singa_dask.training.pass_metrics import PassMetrics

PHASES = {"train": Phase.TRAIN, "val": Phase.VALIDATION, "test": Phase.TEST}
"""By the names that people give them."""


class Tested(NamedTuple):
    """What a test has measured.

    Attributes
    ----------
    metrics : dict of str to float
        nan where one is undefined.
    n_batches, n_records, bad_records : int
    checkpoints : list of str
    net : NeuralNet
        Shapes only.
    matrices : dict of str to ndarray
        Confusion matrices by name, if they are among the metrics; see `PassMetrics`.
    class_names : tuple of tuple of str
        Of each SoftmaxLoss, where they are known.
    """

    metrics: dict[str, float]
    n_batches: int
    n_records: int
    bad_records: int
    checkpoints: list[str]
    net: NeuralNet
    matrices: dict[str, npt.NDArray[np.int64]]
    class_names: tuple[tuple[str, ...], ...]


class Values(NamedTuple):
    """What layers make of the records of some stores.

    Attributes
    ----------
    layers : tuple of str
    topk : int
        Number of the highest values that were kept of each record; 0 for all.
    found : list of Predicted
        For each store.
    class_names : tuple of tuple of str
        For each layer; empty where classes, or labels, have none.
    net : NeuralNet
        Shapes only.
    """

    layers: tuple[str, ...]
    topk: int
    found: list[Predicted]
    class_names: tuple[tuple[str, ...], ...]
    net: NeuralNet

    def rows(self) -> Iterator[list[str]]:
        """Yield the predictions as a table; see `prediction_rows`, and `label_rows` for all values."""
        if not self.topk:
            return label_rows(self.found, self.class_names, self.layers)
        return prediction_rows(self.found, self.topk, self.class_names, self.layers)

    def array(self) -> npt.NDArray[np.float32]:
        """Return the values of the first layer, (n, *shape), for the first store."""
        return np.concatenate([done.arrays[0]["data"] for done in self.found[0].parts])


class Written(NamedTuple):
    """A store that was written: its URL and number of records."""

    url: str
    n: int


@dataclass(frozen=True)
class StoredNet:
    """The net of a job with the values of checkpoints, for records in stores.

    Attributes
    ----------
    read : JobFile
    init_from : sequence of str
        URLs of checkpoints; by default those of the job.
    sources : sequence of Source or None
        The user's own modules; by default those that the job names.
    workers : callable
        Returns a context with the workers, entered once all that can be checked before is right.
    show : callable
        Returns a computation that shows its progress.
    show_written : callable
        Returns a context in which so many records are written.
    """

    read: JobFile
    init_from: Sequence[str]
    workers: Callable[[], AbstractContextManager[Workers]]
    sources: Sequence[Source] | None = None
    show: Callable[[Computation], Computation] = lambda compute: compute
    show_written: Callable[[int], AbstractContextManager[Any]] = nullcontext

    def test(
        self,
        phase: Phase = Phase.TEST,
        steps: int | None = None,
        records: Records | None = None,
        metrics: Sequence[str] | None = None,
    ) -> Tested:
        """Measure the net on the job's records of a phase, or on others.

        Parameters
        ----------
        phase : Phase
        steps : int, optional
            Number of batches, 0 for every record once. By default those of the job for its own records, 0 for others.
        records : Records, optional
        metrics : sequence of str, optional
            Names of metrics, in the place of those of the job; see `PassMetrics`.

        Raises
        ------
        SingaError
        """
        conf = self.read.job
        names = tuple(conf.metrics if metrics is None else metrics)
        if steps is None:
            own = conf.test_steps if phase == Phase.TEST else conf.validate_steps
            steps = 0 if records is not None else own or 0
        losses = [layer.name for layer in conf.neuralnet.layer if layer.in_phase(phase) and is_class_loss(layer)]
        labels = tuple(label_layer(conf, phase, loss) for loss in losses)
        inference = self._inference(
            phase, records, in_order=not steps, opened=False, metric_names=names, label_layers=labels
        )
        merged = PassMetrics(inference.net, names)
        with self.workers() as workers:
            facts, parts = inference.compute(workers, steps, self.show)
        return Tested(
            merge_metrics(parts, merged),
            sum(done.part.n_batches for done in parts),
            sum(done.part.n_records for done in parts),
            sum(done.bad_records for done in parts),
            inference.checkpoints,
            inference.net,
            merged.matrices(),
            facts.class_names,
        )

    def values(
        self,
        layers: Sequence[str] = (),
        stores: Sequence[Records] = (),
        *,
        topk: int = 0,
        phase: Phase = Phase.TEST,
        steps: int = 0,
    ) -> Values:
        """Return what layers make of the records of stores, or the likeliest classes.

        Parameters
        ----------
        layers : sequence of str
            By default the only one with what the net predicts: probabilities of classes or labels, or values.
        stores : sequence of Records
            By default the job's own records of the phase.
        topk : int
            Number of classes; 0 for all values, as always of layers with labels or targets.
        phase : Phase
        steps : int
            Number of batches, 0 for every record once.

        Raises
        ------
        SingaError
        """
        layers = tuple(dict.fromkeys(layers)) or (predicted_layer(self.read.job, phase),)
        are_values = topk > 0 and self._have_values(layers, topk, phase)
        topk = 0 if are_values else topk
        kept = self._kept(layers, phase)
        whole = self._inference(phase, **kept, labels=False, topk=topk, files=bool(stores))
        inferences = [(each.url, whole.of_records(each)) for each in stores] or [("", whole)]
        found = []
        with self.workers() as workers:
            for url, inference in inferences:
                facts, parts = inference.compute(workers, steps, self.show)
                found.append(Predicted(url, parts))
        names = facts.class_names
        if are_values:
            names = tuple(target_names(self.read.job, phase, layer) for layer in layers)
        return Values(layers, topk, found, names, whole.net)

    def _have_values(self, layers: Sequence[str], topk: int, phase: Phase) -> bool:
        """Return whether layers have values, or probabilities of labels, instead of classes."""
        found = [layer for layer in layers if has_values(self.read.job, phase, layer)]
        if found and len(found) < len(layers):
            raise ConfigError(
                f"layers {', '.join(layers)}: some have classes, {found[0]!r} labels or values. Predict them apart."
            )
        if found and topk > 1:
            raise ConfigError(
                f"topk: {topk}, but layer {found[0]!r} has labels or values, all of which are written. Leave it out."
            )
        return bool(found)

    def write(
        self,
        out: str,
        layers: Sequence[str] = (),
        *,
        to: str | None = None,
        overwrite: bool = False,
        overwrite_by: str = "overwrite=True",
        predictions: bool = False,
        phase: Phase = Phase.TEST,
        steps: int = 0,
        records: Records | None = None,
    ) -> Iterator[Written]:
        """Write what layers make of records as stores; yield each when it is written.

        Parameters
        ----------
        out : str
            URL; ``{layer}`` in it stands for the name of a layer, which else, of several, is put before the suffix.
        layers : sequence of str
            By default the only one with the probabilities of classes.
        to : str, optional
            Format; by default told by the suffix.
        overwrite : bool
            Replace what is there.
        overwrite_by : str
            How the user says so, for errors.
        predictions : bool
            Write the likeliest class and its probability, not the values.
        phase : Phase
        steps : int
            Number of batches, 0 for every record once.
        records : Records, optional
            By default those of the job.

        Raises
        ------
        SingaError
        """
        backend = to or backend_of(out)
        check_writes(backend)
        layers = tuple(layers) or (classifier(self.read.job, phase),)
        out = fs.absolute(out)
        urls = [url_of_layer(out, layer, len(layers) > 1) for layer in layers]
        for url in urls:
            if fs.exists(url) and not overwrite:
                raise ConfigError(f"{url}: exists already. Expected a new file. Give {overwrite_by} to replace it.")
        with contextlib.ExitStack() as stack:
            # a few values a record travel with the answers
            folder = "" if predictions else stack.enter_context(folder_beside(out))
            kept = self._kept(layers, phase)
            inference = self._inference(phase, records, **kept, topk=int(predictions), folder=folder)
            with self.workers() as workers:
                facts, parts = inference.compute(workers, steps, self.show)
            for i, url in enumerate(urls):
                with self.show_written(sum(each.part.n_records for each in parts)):
                    n = write_records(parts, i, url, backend, facts.class_names[i])
                yield Written(url, n)

    def _kept(self, layers: Sequence[str], phase: Phase) -> dict[str, Any]:
        return {"layers": layers, "label_layers": tuple(label_layer(self.read.job, phase, each) for each in layers)}

    def _inference(self, phase: Phase, records: Records | None = None, **given: Any) -> Inference:
        inference = Inference(self.read, phase, self.init_from, sources=self.sources, **given)
        return inference if records is None else inference.of_records(records)
