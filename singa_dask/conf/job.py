"""A whole job (SINGA's JobProto) and its algorithm (AlgProto)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from singa_dask.conf.base import Conf
from singa_dask.conf.cluster import ClusterConf
from singa_dask.conf.kinds import Count, Many, NonNegative, Positive, RegisteredName, as_list
from singa_dask.conf.layer import LayerConf
from singa_dask.conf.metrics import FREQUENCIES, EarlyStoppingConf, Keep, check_metrics, split_metric
from singa_dask.conf.mistakes import Finding
from singa_dask.conf.net import NetConf
from singa_dask.conf.parts import PartConf, block_value
from singa_dask.conf.profile import Profile
from singa_dask.conf.updater import LRGenConf, UpdaterConf
from singa_dask.conf.wiring_rules import check_phases
from singa_dask.registry import Registry
from singa_dask.shown import plural


class AlgConf(PartConf):
    """``train_one_batch`` (SINGA's AlgProto)."""

    kind: ClassVar[str] = "algorithm"
    type_key: ClassVar[str] = "alg"
    aliases: ClassVar[Mapping[str, str]] = {"user_alg": "alg"}

    alg: Annotated[str, Field(min_length=1), RegisteredName("algorithm")]
    """BP, BPTT or CD, or a user's algorithm."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's algorithm."""


class JobConf(Conf):
    """A job (SINGA's JobProto without its internal fields)."""

    aliases: ClassVar[Mapping[str, str]] = {"num_openblas_threads": "threads"}

    name: str = "job"
    """Name of the job."""
    neuralnet: NetConf
    """The net."""
    train_one_batch: AlgConf = AlgConf(alg="BP")
    """The algorithm; needed to train."""
    updater: UpdaterConf = Field(default_factory=lambda: UpdaterConf(type="SGD", learning_rate=LRGenConf(type="Fixed")))
    """The update rule; needed to train."""
    cluster: ClusterConf = ClusterConf.model_construct()
    """Workers, servers and processes."""
    train_steps: Count = 0
    """Number of steps to train. With an updater, the job needs train_steps or epochs."""
    epochs: Positive | None = None
    """Number of passes over the training records, instead of train_steps. In a pass, the worker groups together read
    each record once; the number of steps is rounded up."""
    disp_freq: Count = 0
    """Steps between two lines of progress; 0 for none."""
    gpu: Many[Count] = Field(default=[])
    """GPUs for the workers of each process, in order, numbered as the process sees them; other workers use the CPU."""
    test_freq: Count = 0
    """Steps between two tests; 0 for none."""
    test_steps: Count | None = None
    """Number of batches of a test; 0 for none. By default a test reads each record of the store once."""
    validate_freq: Count = 0
    """Steps between two validations; 0 for none."""
    validate_steps: Count | None = None
    """Number of batches of a validation; 0 for none. By default a validation reads each record of the store once."""
    metrics: Many[str] = Field(default=[])
    """Additional metrics of whole tests and validations, with scikit-learn's names: balanced_accuracy,
    precision, recall, f1, and each of these with _macro, _micro or _weighted, roc_auc, roc_auc_ovr, average_precision,
    top_5_accuracy, perplexity, confusion_matrix; mse, mae, rmse, r2."""
    baseline: dict[str, float] = Field(default={})
    """Metrics of a simple model on the test records, e.g. {accuracy: 0.81, records: 1600}, with which the last test
    is compared. init writes the metrics of a linear model. A test of another number of records is not compared."""
    checkpoint_freq: Count = 0
    """Steps between two checkpoints; 0 for one at the end only."""
    checkpoint_minutes: NonNegative = 0.0
    """Minutes between two checkpoints, in addition to the checkpoints of checkpoint_freq; 0 for none."""
    keep_checkpoints: Keep | None = None
    """Checkpoints to keep: the number of newest checkpoints, or {last, best, metric}. By default all are kept."""
    early_stopping: EarlyStoppingConf | None = None
    """Stop the training when a metric no longer improves."""
    checkpoint_path: Many[str] = Field(default=[])
    """Checkpoints with initial values of params, matched by name. If several have a param, the last one in the list
    is used. An entry is a run directory, a step, or a file of SINGA. If workspace/checkpoint/step<n>-worker0 does not
    exist, it means step n of the newest run in that workspace."""
    warmup_steps: Count = 0
    """Unused, as in SINGA."""
    tensorboard: bool = False
    """Write TensorBoard event files to tensorboard/ in the run directory."""
    mlflow: str = ""
    """URI of an MLflow server for params, metrics and files of the run, e.g. http://host:5000."""
    debug: bool = False
    """Check in each step that each layer writes all of its own arrays, and no other arrays. Log the mean absolute
    values of each layer and its params on the workers, every disp_freq steps."""
    profile: Profile = None
    """Record when each unit computes, waits and sends during some steps, and the time of each layer, in trace.json in
    the run directory: true, or {first_step, steps}."""
    reset_param_version: bool = True
    """Count the updates of loaded params from the first step of this job, instead of continuing the saved counts."""
    ops: Literal["auto", "numpy", "onednn", "cupy"] = "auto"
    """Kernels: auto is onednn if installed, else numpy; cupy runs all workers on the GPUs of gpu, in turn."""
    threads: Count = 0
    """Number of threads of a worker, at most the worker's share of the cores; 0 for the whole share."""
    checkpoint_after: Count = 0
    """First step with a checkpoint."""
    disp_after: Count = 0
    """First step with a line of progress."""
    test_after: Count = 0
    """First step with a test."""
    validate_after: Count = 0
    """First step with a validation."""
    modules: Many[str] = Field(default=[])
    """Python files, directories or modules with parts of your own; all processes get a copy. In the job, name a class
    as module.Class."""
    seed: Count = 0
    """Seed of all random numbers of the job."""
    user_conf: dict[str, Any] = Field(default={})
    """Values for the user's programs; unused here."""
    precision: Literal["float32", "float64", "tf32", "bf16"] = "float32"
    """Type of features and params. tf32: float32, with coarser products on GPUs. bf16: bfloat16 with params in
    float32; on CPUs, bf16 needs ops: onednn, and is slower than float32 if the CPU has no instructions for
    bfloat16."""

    @classmethod
    def from_json(cls, text: str, registries: Mapping[str, Registry[Any]] | None = None) -> JobConf:
        """Read a valid job from the text of `to_json`; blocks are validated only with ``registries``."""
        return cls.model_validate(json.loads(text), context={"registries": registries})

    def to_json(self) -> str:
        """Return the job as text for other processes, also if URLs contain bytes that are not UTF-8."""
        return json.dumps(self.model_dump(mode="json"))

    @property
    def trains(self) -> bool:
        """Whether the job is for training; otherwise it is for tests and sampling."""
        return bool({"updater", "train_steps", "epochs"} & self.model_fields_set)

    def with_layers(self, layers: list[LayerConf]) -> JobConf:
        """Return a copy of the job with other layers."""
        return self.model_copy(update={"neuralnet": self.neuralnet.model_copy(update={"layer": layers})})

    @property
    def length(self) -> str:
        """Length of the training in words."""
        return plural(self.train_steps, "step") if self.epochs is None else plural(self.epochs, "epoch")

    def rules(self) -> Iterator[Finding]:
        """Check frequencies and their steps, the nets of all phases, and batches against workers."""
        given, by_epochs = self.model_fields_set, self.epochs is not None or "epochs" in self.wrong
        needed = ("train_one_batch", "updater", *(() if by_epochs else ("train_steps",)))
        for key in needed if self.trains else ():
            if key not in given:
                yield (key,), "this required key is missing."
        if by_epochs and self.train_steps > 0:
            yield ("epochs",), "train_steps is set, too. Remove one of the two keys."
        has_steps = self.train_steps > 0 if "train_steps" in given - self.wrong else self.trains
        phases = ["train"] if by_epochs or has_steps else []
        phases += ["test"] if self.test_freq and self.test_steps != 0 else []
        phases += ["val"] if self.validate_freq and self.validate_steps != 0 else []
        for path, message in check_phases(self.neuralnet.layer, phases):
            yield ("neuralnet", "layer", *path), message
        if self.precision == "bf16" and self.ops == "numpy":
            yield ("precision",), "bf16 needs ops onednn or cupy, not numpy. Set ops: auto, or precision: float32."
        if self.gpu and self.ops in ("numpy", "onednn"):
            yield ("gpu",), f"ops {self.ops} uses no GPUs. Set ops: auto, or leave gpu out."
        yield from _check_updates(self)
        yield from _check_measured(self)
        yield from check_metrics(self.metrics)
        yield from _divide_batches(self)


def _check_updates(job: JobConf) -> Iterator[Finding]:
    """Check that the topology and the algorithm allow moving averages, accumulation, and clipping by the norm."""
    updater, groups, servers = job.updater, job.cluster.nworker_groups, job.cluster.nservers_per_group
    if updater.ema_decay > 0 and job.cluster.nserver_groups > 1:
        yield (
            ("updater", "ema_decay"),
            "several server groups do not keep moving averages up to date. Set nserver_groups: 1.",
        )
    if groups > 1 and updater.accumulate > 1:
        message = (
            f"the gradients of {groups} worker groups arrive in any order. Set accumulate: 1, or nworker_groups: 1."
        )
        yield ("updater", "accumulate"), message
    if updater.clip_norm > 0:
        if groups > 1 and servers > 1:
            message = f"with {groups} worker groups, one server must have all gradients, but a group has {servers}."
            yield ("updater", "clip_norm"), f"{message} Set nservers_per_group: 1."
        alg = job.train_one_batch.alg
        if alg not in ("", "BP", "BPTT"):
            yield (
                ("updater", "clip_norm"),
                f"{alg} may not compute the gradients of all params. Set alg: BP, or leave clip_norm out.",
            )


def _check_measured(job: JobConf) -> Iterator[Finding]:
    """Yield (path, message) for each watched metric that is never measured."""
    for key, followed in (("early_stopping", job.early_stopping), ("keep_checkpoints", job.keep_checkpoints)):
        phase, _ = split_metric(followed.metric if followed else "")
        # if no number of batches is set, all records are measured
        for needed in FREQUENCIES.get(phase, ()):
            if getattr(job, needed) == 0 and needed not in job.wrong:
                message = f"this metric is never measured, as {needed} is 0. Set {needed}, or leave {key} out."
                yield (key, "metric"), message
                break


def _divide_batches(job: JobConf) -> Iterator[Finding]:
    workers, net = job.cluster.nworkers_per_group, job.neuralnet
    for index, layer in enumerate(net.layer):
        dim = net.partition_dim if layer.partition_dim is None else layer.partition_dim
        if dim != 0 or workers < 2 or layer.location is not None:
            continue
        for name, block in layer.blocks.items():
            is_given = not isinstance(block, Conf) or "batchsize" in block.model_fields_set
            sizes = as_list(block_value(block, "batchsize")) if is_given else []
            path = ("neuralnet", "layer", index, name, "batchsize")
            if len(sizes) > 1 and len(sizes) != workers:
                yield path, f"expected one number, or one for each of {workers} workers of a group, got {len(sizes)}."
