"""A whole job (SINGA's JobProto), how one batch is trained (AlgProto), and which steps are profiled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from singa_dask.conf.cluster import ClusterConf
from singa_dask.conf.layer import LayerConf
from singa_dask.conf.model import (
    Conf,
    Count,
    Finding,
    Many,
    NonNegative,
    Positive,
    RegisteredName,
    Shorthand,
    Size,
    as_list,
    raw_value,
)
from singa_dask.conf.net import NetConf
from singa_dask.conf.part import PartConf, raw_blocks
from singa_dask.conf.watched import EarlyStoppingConf, Keep, check_measured, check_metrics
from singa_dask.conf.wiring import check_phases, read_wiring
from singa_dask.registry import Registry

DecayRate = Annotated[float, Field(ge=0, lt=1)]


class LRGenConf(PartConf):
    """``learning_rate`` (SINGA's LRGenProto)."""

    kind: ClassVar[str] = "schedule"
    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    type: Annotated[str, Field(min_length=1), RegisteredName("schedule")]
    """How the rate changes."""
    base_lr: NonNegative = 0.01
    """First rate."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's own schedule."""


class UpdaterConf(PartConf):
    """``updater`` (SINGA's UpdaterProto)."""

    kind: ClassVar[str] = "updater"
    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    type: Annotated[str, Field(min_length=1), RegisteredName("updater")]
    """Update rule."""
    learning_rate: LRGenConf
    """Learning rate over time."""
    momentum: DecayRate = 0.0
    """Decay rate of the velocity; for SGD and Nesterov."""
    weight_decay: NonNegative = 0.0
    """L2 penalty."""
    delta: Positive = 1e-8
    """Added to a denominator to keep it from zero."""
    clip_low: float = 0.0
    """Lower bound of each gradient value, used if clip_high is greater. It holds for the gradient that is applied, the
    mean over the batch of the whole worker group; SINGA clips the sum over workers before it averages."""
    clip_high: float = 0.0
    """Upper bound of each gradient value, used if it is greater than clip_low."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's own updater."""


class ProfileConf(Conf):
    """``profile``: the steps that are recorded."""

    first_step: Count = 20
    """Steps to leave out, counted from where the run begins or goes on. A run that is too short records its last."""
    steps: Size = 5
    """Steps to record."""

    def window(self, first: int, train_steps: int) -> range:
        """Return the steps to record of a worker that begins at step ``first``."""
        start = min(first + self.first_step, max(train_steps - self.steps, first))
        return range(start, min(start + self.steps, train_steps))


def _as_profile(value: object) -> object:
    return ({} if value else None) if isinstance(value, bool) else value


# True stands for the default steps, and false for none.
Profile: TypeAlias = Annotated[
    ProfileConf | None, Shorthand(_as_profile, lambda either: [{"type": "boolean"}, *either["anyOf"]])
]


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
    cluster: ClusterConf = ClusterConf()
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
    def from_json(cls, text: str, registries: Mapping[str, Registry[Any]]) -> JobConf:
        """Read a valid job as it travels between processes, ``model_dump_json()``, with its blocks."""
        return cls.model_validate_json(text, context={"registries": registries})

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
        return f"{self.train_steps} steps" if self.epochs is None else f"{self.epochs:g} epochs"

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check frequencies and their steps, the nets of all phases, and batches against workers."""
        # a job without updater, train_steps and epochs is for tests and for sampling
        lengths = [key for key in ("updater", "train_steps", "epochs") if data.get(key) is not None]
        by_epochs = "epochs" in lengths
        for key in ("train_one_batch", "updater", "train_steps") if lengths else ():
            if key not in data and not (by_epochs and key == "train_steps"):
                yield (key,), "this key is required, and missing."
        if by_epochs and raw_value(data, "train_steps", int, 0) > 0:
            yield ("epochs",), "train_steps says how long to train, too. Expected one of them: remove the other."
        phases = ["train"] if by_epochs or raw_value(data, "train_steps", int, len(lengths)) > 0 else []
        for phase, freq, steps in (("test", "test_freq", "test_steps"), ("val", "validate_freq", "validate_steps")):
            if raw_value(data, freq, int, 0) > 0 and raw_value(data, steps, int, 1) > 0:
                phases.append(phase)
        for path, message in check_phases(read_wiring(data.get("neuralnet")), phases):
            yield ("neuralnet", "layer", *path), message
        ops, precision = (raw_value(data, key, str, "") for key in ("ops", "precision"))
        if precision == "bf16" and ops == "numpy":
            yield ("precision",), "bf16 is for ops onednn and cupy, not numpy. Say ops: auto, or precision: float32."
        if as_list(raw_value(data, "gpu", object, [])) and ops in ("numpy", "onednn"):
            yield ("gpu",), f"these GPUs are not for ops {ops}. Say ops: auto, or leave gpu out."
        yield from check_measured(data)
        yield from check_metrics(raw_value(data, "metrics", object, []))
        yield from _divide_batches(data)


def _divide_batches(data: Mapping[str, Any]) -> Iterator[Finding]:
    workers = raw_value(raw_value(data, "cluster", object, {}), "nworkers_per_group", int, 1)
    net = raw_value(data, "neuralnet", object, {})
    for index, layer in enumerate(as_list(raw_value(net, "layer", object, []))):
        dim = raw_value(layer, "partition_dim", int, raw_value(net, "partition_dim", int, 0))
        if dim != 0 or workers < 2 or raw_value(layer, "location", object, None) is not None:
            continue
        for name in raw_blocks(layer):
            sizes = as_list(raw_value(raw_value(layer, name, object, {}), "batchsize", object, None))
            path = ("neuralnet", "layer", index, name, "batchsize")
            if len(sizes) > 1 and len(sizes) != workers:
                yield path, f"expected one number, or one for each of {workers} workers of a group, got {len(sizes)}."
            elif len(sizes) == 1 and isinstance(sizes[0], int) and sizes[0] % workers:
                yield path, f"expected a multiple of nworkers_per_group, which is {workers}, got {sizes[0]}."
