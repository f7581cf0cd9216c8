"""A whole job (SINGA's JobProto), with its algorithm (AlgProto)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from singa_dask.conf.base import Conf
from singa_dask.conf.cluster import ClusterConf
from singa_dask.conf.findings import Finding
from singa_dask.conf.kinds import Count, Many, NonNegative, Positive, RegisteredName, as_list
from singa_dask.conf.layer import LayerConf
from singa_dask.conf.net import NetConf
from singa_dask.conf.parts import PartConf, block_value
from singa_dask.conf.profile import Profile
from singa_dask.conf.updater import LRGenConf, UpdaterConf
from singa_dask.conf.watched import FREQUENCIES, EarlyStoppingConf, Keep, check_metrics, split_metric
from singa_dask.conf.wiring_rules import check_phases
from singa_dask.registry import Registry
from singa_dask.shown import plural


class AlgConf(PartConf):
    """``train_one_batch`` (SINGA's AlgProto)."""

    kind: ClassVar[str] = "algorithm"
    type_key: ClassVar[str] = "alg"
    aliases: ClassVar[Mapping[str, str]] = {"user_alg": "alg"}

    alg: Annotated[str, Field(min_length=1), RegisteredName("algorithm")]
    """BP, BPTT or CD, or one of the user's own."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's own algorithm."""


class JobConf(Conf):
    """A job (SINGA's JobProto without its internal fields; seed, precision and ops are additions)."""

    aliases: ClassVar[Mapping[str, str]] = {"num_openblas_threads": "threads"}

    name: str = "job"
    """Name of the job."""
    neuralnet: NetConf
    """The net."""
    train_one_batch: AlgConf = AlgConf(alg="BP")
    """The algorithm; needed to train."""
    updater: UpdaterConf = Field(default_factory=lambda: UpdaterConf(type="SGD", learning_rate=LRGenConf(type="Fixed")))
    """The update rule of the servers; needed to train."""
    cluster: ClusterConf = ClusterConf.model_construct()
    """Workers, servers and processes."""
    train_steps: Count = 0
    """Steps to train; they count from 0. Needed where there is an updater, unless epochs is there."""
    epochs: Positive | None = None
    """Passes over the training records, in place of train_steps. In each, the worker groups together read every record
    once; the steps are rounded up."""
    disp_freq: Count = 0
    """Steps between two lines of progress; 0 is never."""
    gpu: Many[Count] = Field(default=[])
    """GPUs of the workers of each process, one by one, numbered as the process sees them; those left use the CPU."""
    test_freq: Count = 0
    """Steps between two tests; 0 is never."""
    test_steps: Count | None = None
    """Batches of a test; 0 is none. Without it, a test takes every record of the store once."""
    validate_freq: Count = 0
    """Steps between two validations; 0 is never."""
    validate_steps: Count | None = None
    """Batches of a validation; 0 is none. Without it, a validation takes every record of the store once."""
    metrics: Many[str] = Field(default=[])
    """Metrics of whole tests and validations, beside those of the layers, with scikit-learn's names: balanced_accuracy,
    precision, recall, f1, and each of these with _macro, _micro or _weighted, roc_auc, roc_auc_ovr, average_precision,
    top_5_accuracy, perplexity, confusion_matrix; mse, mae, rmse, r2."""
    checkpoint_freq: Count = 0
    """Steps between two checkpoints; 0 is only at the end."""
    checkpoint_minutes: NonNegative = 0.0
    """Minutes between two checkpoints, beside those of checkpoint_freq; 0 is never."""
    keep_checkpoints: Keep | None = None
    """Checkpoints that stay, the others are deleted: a number of newest ones, or {last, best, metric}. Else all."""
    early_stopping: EarlyStoppingConf | None = None
    """End the training when a metric no longer becomes better."""
    checkpoint_path: Many[str] = Field(default=[])
    """Checkpoints from which params start, by name; a later one wins. Run directories, steps, or files of SINGA's. In
    place of a missing workspace/checkpoint/step<n>-worker0 it is step n of the newest run in that workspace."""
    warmup_steps: Count = 0
    """Kept from SINGA, where it warms up nothing."""
    tensorboard: bool = False
    """Write event files of TensorBoard to tensorboard/ in the run directory."""
    mlflow: str = ""
    """URI of an MLflow server that gets params, metrics and files of the run, e.g. http://host:5000."""
    debug: bool = False
    """Check in each step that layers write all of what is theirs, and nothing else. Write the mean absolute values of
    each layer and its params to the workers' logs, at the steps of disp_freq."""
    profile: Profile = None
    """Record when each unit computes, waits and sends in a few steps, as trace.json in the run directory, and the time
    of each layer: true, or {first_step, steps}."""
    reset_param_version: bool = True
    """Count updates of loaded params from the first step."""
    ops: Literal["auto", "numpy", "onednn", "cupy"] = "auto"
    """Kernels: auto is onednn where it is installed, else numpy; cupy: all workers on GPUs, in turn those of gpu."""
    threads: Count = 0
    """Threads of one worker, never more than its share of the cores; 0 is all of its share."""
    checkpoint_after: Count = 0
    """First step at which a checkpoint may be taken."""
    disp_after: Count = 0
    """First step at which progress may be shown."""
    test_after: Count = 0
    """First step at which a test may run."""
    validate_after: Count = 0
    """First step at which a validation may run."""
    modules: Many[str] = Field(default=[])
    """The user's own modules, files or directories; each process gets their text. Types in them are module.Class."""
    seed: Count = 0
    """From which all random numbers of the job follow."""
    user_conf: dict[str, Any] = Field(default={})
    """What a program of the user's own may want to know; nothing here reads it."""
    precision: Literal["float32", "float64", "tf32", "bf16"] = "float32"
    """Type of features and params; tf32: float32, on GPUs with coarser products; bf16: bfloat16, and params float32.
    A CPU without instructions for it is slower in bf16 than in float32, and needs ops: onednn to use it."""

    @classmethod
    def from_json(cls, text: str, registries: Mapping[str, Registry[Any]] | None = None) -> JobConf:
        """Read a valid job from the text that `to_json` wrote in another process; blocks only with ``registries``."""
        return cls.model_validate(json.loads(text), context={"registries": registries})

    def to_json(self) -> str:
        """Return the job as text for other processes. URLs in it may have bytes that pydantic's own JSON refuses."""
        return json.dumps(self.model_dump(mode="json"))

    @property
    def trains(self) -> bool:
        """Whether the job is one to train; else it is for tests and for sampling."""
        return bool({"updater", "train_steps", "epochs"} & self.model_fields_set)

    def with_layers(self, layers: list[LayerConf]) -> JobConf:
        """Return the job with other layers."""
        return self.model_copy(update={"neuralnet": self.neuralnet.model_copy(update={"layer": layers})})

    @property
    def length(self) -> str:
        """How long it trains, in words."""
        return plural(self.train_steps, "step") if self.epochs is None else plural(self.epochs, "epoch")

    def rules(self) -> Iterator[Finding]:
        """Check frequencies and their steps, the nets of all phases, and batches against workers."""
        given, by_epochs = self.model_fields_set, self.epochs is not None or "epochs" in self.wrong
        # a job without updater, train_steps and epochs is for tests and for sampling
        needed = ("train_one_batch", "updater", *(() if by_epochs else ("train_steps",)))
        for key in needed if self.trains else ():
            if key not in given:
                yield (key,), "this key is required, and missing."
        if by_epochs and self.train_steps > 0:
            yield ("epochs",), "train_steps says how long to train, too. Expected one of them: remove the other."
        has_steps = self.train_steps > 0 if "train_steps" in given - self.wrong else self.trains
        phases = ["train"] if by_epochs or has_steps else []
        phases += ["test"] if self.test_freq and self.test_steps != 0 else []
        phases += ["val"] if self.validate_freq and self.validate_steps != 0 else []
        for path, message in check_phases(self.neuralnet.layer, phases):
            yield ("neuralnet", "layer", *path), message
        if self.precision == "bf16" and self.ops == "numpy":
            yield ("precision",), "bf16 is for ops onednn and cupy, not numpy. Say ops: auto, or precision: float32."
        if self.gpu and self.ops in ("numpy", "onednn"):
            yield ("gpu",), f"these GPUs are not for ops {self.ops}. Say ops: auto, or leave gpu out."
        yield from _check_updates(self)
        yield from _check_measured(self)
        yield from check_metrics(self.metrics)
        yield from _divide_batches(self)


def _check_updates(job: JobConf) -> Iterator[Finding]:
    """Check that the topology and the algorithm are such that gradients can be clipped by their norm, or added up."""
    updater, groups, servers = job.updater, job.cluster.nworker_groups, job.cluster.nservers_per_group
    if updater.ema_decay > 0 and job.cluster.nserver_groups > 1:
        yield ("updater", "ema_decay"), "several server groups change params without an average. Say nserver_groups: 1."
    if groups > 1 and updater.accumulate > 1:
        message = f"nworker_groups is {groups}, whose gradients come in any order. Say 1, or one worker group."
        yield ("updater", "accumulate"), message
    if updater.clip_norm > 0:
        if groups > 1 and servers > 1:
            message = f"the {groups} worker groups need one server a group, which knows all gradients, got {servers}. "
            yield ("updater", "clip_norm"), f"{message}Say nservers_per_group: 1."
        alg = job.train_one_batch.alg
        if alg not in ("", "BP", "BPTT"):
            yield ("updater", "clip_norm"), f"{alg} may not have gradients of all params. Expected BP. Leave it out."


def _check_measured(job: JobConf) -> Iterator[Finding]:
    """Yield (path, message) for each metric that a job follows and never measures."""
    for key, followed in (("early_stopping", job.early_stopping), ("keep_checkpoints", job.keep_checkpoints)):
        phase, _ = split_metric(followed.metric if followed else "")
        # without a number of batches, all records are measured
        for needed in FREQUENCIES.get(phase, ()):
            if getattr(job, needed) == 0 and needed not in job.wrong:
                yield (key, "metric"), f"it is never measured: {needed} is 0. Set it, or leave {key} out."
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
            elif len(sizes) == 1 and isinstance(sizes[0], int) and sizes[0] % workers:
                yield path, f"expected a multiple of nworkers_per_group, which is {workers}, got {sizes[0]}."
