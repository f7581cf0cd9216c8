"""A whole job (SINGA's JobProto), how one batch is trained (AlgProto), and which steps are profiled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from singa_dask.conf.base import Conf, raw_value
from singa_dask.conf.findings import Finding
from singa_dask.conf.kinds import Count, Many, NonNegative, Positive, RegisteredName, Shorthand, Size, as_list
from singa_dask.conf.net import LayerConf, NetConf, check_phases, read_wiring
from singa_dask.conf.parts import PartConf, raw_blocks
from singa_dask.registry import Registry, suggest
from singa_dask.shown import plural

# Topology: groups of workers and of servers, and the processes they live in (SINGA's ClusterProto).


_PORTS = re.compile(r"(\d+)(?:-(\d+))?")
_MAX_PORT = 65535


class ElasticConf(Conf):
    """``elastic`` of a cluster: how many processes a job may be spread over while it runs."""

    min_processes: Size = 1
    """Fewest processes that the units are packed on when processes are lost."""
    max_processes: Size | None = None
    """Most processes that the units are spread over; by default those of the cluster block."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that the minimum is not above the maximum."""
        least, most = (raw_value(data, f"{key}_processes", int, 0) for key in ("min", "max"))
        if 0 < most < least:
            yield ("min_processes",), f"expected at most max_processes, which is {most}, got {least}."


def _text_of_number(value: object) -> object:
    return str(value) if type(value) is int else value


class ListenConf(Conf):
    """``listen`` of a cluster: where and how the processes of a job take messages from each other."""

    interface: str = ""
    """Name of a network interface, as ``eth0``, an IP address or a host name; it is looked up on the host of each
    process. By default the host of the Dask worker. With ``0.0.0.0`` all interfaces."""
    ports: Annotated[str, BeforeValidator(_text_of_number)] = ""
    """One port or a range of them, as ``9000-9100``: each process takes the first one that is free. By default any."""
    shared_memory: bool = True
    """Pass arrays between processes of one host through memory that both have mapped, where the system allows it."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check the range of ports."""
        text = str(_text_of_number(data.get("ports", "")))
        found = _PORTS.fullmatch(text)
        first, last = map(int, (found[1], found[2] or found[1])) if found else (0, 0)
        if text and not 0 < first <= last <= _MAX_PORT:
            yield ("ports",), f"expected a port or a range, as 9000-9100, from 1 to {_MAX_PORT}, got {text!r}."

    @property
    def port_range(self) -> range:
        """The ports to choose from; 0 alone stands for any."""
        first, _, last = (self.ports or "0").partition("-")
        return range(int(first), int(last or first) + 1)


class WorkersConf(Conf):
    """``workers`` of a cluster: the Dask workers that a job may use; by default all."""

    name: Annotated[str, BeforeValidator(_text_of_number)] = ""
    """Pattern of their names, as ``gpu-*``."""
    resources: Mapping[str, NonNegative] = {}
    """What they have at least, of what they were started with by ``dask-worker --resources``, as ``{GPU: 1}``. Jobs do
    not share it out."""

    @property
    def is_any(self) -> bool:
        """Whether all Dask workers may be used."""
        return not (self.name or self.resources)

    def fits(self, name: str, resources: Mapping[str, float]) -> bool:
        """Return whether a Dask worker may be used."""
        has_all = all(resources.get(key, 0) >= least for key, least in self.resources.items())
        return fnmatchcase(name, self.name or "*") and has_all


class ClusterConf(Conf):
    """``cluster`` (SINGA's ClusterProto)."""

    nworker_groups: Size = 1
    """Worker groups; each trains its own copy of the net, without waiting for the others."""
    nserver_groups: Size = 1
    """Server groups; each keeps its own copy of the params."""
    nworkers_per_group: Size = 1
    """Workers that share each batch of a group."""
    nservers_per_group: Size = 1
    """Servers that share the params of a group."""
    nworkers_per_procs: Size = 1
    """Workers in one process."""
    nservers_per_procs: Size = 1
    """Servers in one process."""
    workspace: str = ""
    """URL or path under which runs are written."""
    server_worker_separate: bool = False
    """Keep servers and workers in different processes."""
    sync_freq: Size = 1
    """Updates of a slice between two exchanges of server groups."""
    start_port: Count = 6723
    """Unused: see ``listen``."""
    share_memory: bool = True
    """Let worker groups of one process use one memory for their params."""
    snapshot_freq: Count | None = None
    """Steps between two snapshots, copies of the job's state in the memory of its processes, from which the job goes on
    when one of them is lost; 0 is never. By default so often that they take 1 % of the time."""
    poll_time: Count = 100
    """Unused: nothing polls."""
    # blocks of defaults need no validator, which takes a millisecond each to build when this file is imported
    elastic: ElasticConf = ElasticConf.model_construct()
    """Bounds for the number of processes."""
    listen: ListenConf = ListenConf.model_construct()
    """Network interface and ports of the job's processes."""
    workers: WorkersConf = WorkersConf.model_construct()
    """The Dask workers that the job may use."""
    max_restarts: Count = 10
    """Restarts without a later step between them after which the job fails; 0 for none."""
    wait_for_workers_minutes: NonNegative = 10.0
    """How long a job that has lost processes waits for Dask workers, or for a silent network, before it fails."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that each server group serves equally many worker groups, and that the job has enough processes."""
        workers, servers = (raw_value(data, key, int, 1) for key in ("nworker_groups", "nserver_groups"))
        if workers > 0 and servers > 0 and workers % servers:
            yield (
                ("nserver_groups",),
                f"expected a number that divides nworker_groups, which is {workers}, got {servers}.",
            )
        n, elastic = _n_processes(data), data.get("elastic")
        for key in ("min_processes", "max_processes"):
            found = raw_value(elastic, key, int, 0)
            if found > n > 0:
                yield (
                    ("elastic", key),
                    f"expected at most the number of processes of the job, which is {n}, got {found}.",
                )


def _n_processes(data: Mapping[str, Any]) -> int:
    """Return the number of processes that raw values of a cluster block make, 0 if they are mistaken."""
    numbers = []
    for unit in ("worker", "server"):
        keys = (f"n{unit}_groups", f"n{unit}s_per_group", f"n{unit}s_per_procs")
        n_groups, per_group, per_process = (raw_value(data, key, int, 1) for key in keys)
        if min(n_groups, per_group, per_process) < 1:
            return 0
        numbers.append(-(-n_groups * per_group // per_process))
    return sum(numbers) if raw_value(data, "server_worker_separate", bool, False) else max(numbers)


# Keys of a job that follow a metric of its tests or validations: ``keep_checkpoints``, ``early_stopping``.


Mode: TypeAlias = Literal["auto", "min", "max"]

CONFUSION = "confusion_matrix"
RANKED = {"roc_auc", "roc_auc_ovr", "average_precision"}
VALUES = {"mse", "mae", "rmse", "r2"}
TOP = re.compile(r"top_([1-9]\d*)_accuracy")
AVERAGES = ("", "_macro", "_micro", "_weighted")
SCORES = {"balanced_accuracy", *(f"{name}{how}" for name in ("precision", "recall", "f1") for how in AVERAGES), *RANKED}
PASS_METRICS = SCORES | VALUES | {"perplexity", CONFUSION}
"""Metrics of ``metrics``, beside ``top_K_accuracy``."""

LESS_IS_BETTER = ("loss", "error")
MORE_IS_BETTER = ("accuracy",)
FREQUENCIES = {"validation": ("validate_freq", "validate_steps"), "test": ("test_freq", "test_steps")}
"""Keys of a job for the frequency of a phase, and for its number of batches; the phase runs if neither is 0."""


def split_metric(metric: str) -> tuple[str, str]:
    """Split ``validation.loss`` into phase and name; both are empty if it is none."""
    phase, _, name = metric.partition(".")
    phase = "validation" if phase == "val" else phase
    return (phase, name) if phase in FREQUENCIES and name else ("", "")


def is_less_better(metric: str, mode: Mode) -> bool | None:
    """Return whether less is better; None if ``auto`` cannot tell."""
    if mode != "auto":
        return mode == "min"
    name = metric.rpartition(".")[2]
    if metric.endswith(LESS_IS_BETTER) or name in {"perplexity", *VALUES} - {"r2"}:
        return True
    return False if metric.endswith(MORE_IS_BETTER) or name in {*SCORES, "r2"} else None


def _check(data: Mapping[str, Any]) -> Iterator[Finding]:
    metric = raw_value(data, "metric", str, "")
    if metric and not split_metric(metric)[0]:
        yield ("metric",), f"expected validation.<name> or test.<name>, e.g. validation.loss, got {metric!r}."
    elif metric and is_less_better(metric, raw_value(data, "mode", str, "auto")) is None:  # type: ignore[arg-type]
        yield ("mode",), f"whether less or more of {metric} is better is not known. Say mode: min, or mode: max."


class KeepConf(Conf):
    """``keep_checkpoints``: which checkpoints stay when a newer one is complete; the newest always does."""

    last: Size = 1
    """Newest checkpoints that stay."""
    best: Count = 0
    """Best checkpoints that stay beside them, by the metric."""
    metric: str = ""
    """Metric of a test or validation, e.g. test.accuracy. A checkpoint counts with the last value before it."""
    mode: Mode = "auto"
    """Whether less (min) or more (max) is better; auto knows losses, errors, accuracies, and those of metrics."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that best and metric are there together."""
        yield from _check(data)
        if raw_value(data, "best", int, 0) > 0 and not raw_value(data, "metric", str, ""):
            yield ("best",), "metric is missing: say by which one, e.g. metric: validation.loss."
        if raw_value(data, "metric", str, "") and raw_value(data, "best", int, 0) == 0:
            yield ("metric",), "nothing is kept by it. Say best: 1, or leave it out."


class EarlyStoppingConf(Conf):
    """``early_stopping``: end the training when a metric no longer improves."""

    metric: str
    """Metric of a test or validation, e.g. validation.loss."""
    patience: Size = 5
    """Tests or validations in a row without a better value after which the job ends."""
    min_delta: NonNegative = 0.0
    """A value is better when it differs from the best so far by more than this."""
    every_best: bool = False
    """Compare with the best of all values, as scikit-learn does, not with the last that was better by ``min_delta``."""
    restore_best: bool = False
    """Write a checkpoint at each best value, and keep the newest of these: test, predict, export and serve of the run,
    and jobs that start from its params, take that of the best value. A run that goes on does so from its last step."""
    mode: Mode = "auto"
    """Whether less (min) or more (max) is better; auto knows losses, errors, accuracies, and those of metrics."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that it is known whether less or more is better."""
        return _check(data)


def _as_keep(value: object) -> object:
    return {"last": value} if isinstance(value, int) and not isinstance(value, bool) else value


# A number stands for {last: number}.
Keep: TypeAlias = Annotated[KeepConf, Shorthand(_as_keep, lambda block: [{"type": "integer", "minimum": 1}, block])]


def check_metrics(names: object) -> Iterator[Finding]:
    """Yield (path, message) for each metric of ``metrics`` that nobody knows."""
    for i, name in enumerate(as_list(names)):
        if isinstance(name, str) and name not in PASS_METRICS and not TOP.fullmatch(name):
            yield ("metrics", i), f"unknown metric {name!r}. {suggest(name, [*sorted(PASS_METRICS), 'top_5_accuracy'])}"


def check_measured(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield (path, message) for each metric that a job follows and never measures."""
    for key in ("early_stopping", "keep_checkpoints"):
        phase, _ = split_metric(raw_value(raw_value(data, key, object, {}), "metric", str, ""))
        for default, needed in enumerate(FREQUENCIES.get(phase, ())):
            # without a number of batches, all records are measured
            if raw_value(data, needed, int, default) == 0:
                yield (key, "metric"), f"it is never measured: {needed} is 0. Set it, or leave {key} out."
                break


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


class ScaleConf(Conf):
    """One of ``scales`` of an updater: factors of some params."""

    param: str = Field(min_length=1)
    """Pattern of their names, as ``*.bias``."""
    lr_scale: NonNegative = 1.0
    """Multiplies the learning rate."""
    wd_scale: NonNegative = 1.0
    """Multiplies the weight decay."""


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
    clip_norm: NonNegative = 0.0
    """Upper bound of the norm of the gradient of all params together, 0 is none: a longer one is multiplied by
    clip_norm / norm, before clip_low, clip_high and weight decay. It is that of the batch of a whole worker group; each
    of several worker groups has its own, with one server a group. Needs BP; updates wait for the last gradient."""
    accumulate: Size = 1
    """Batches that make one update, with the mean of their gradients, of one worker group: as one batch that is so many
    times as large. All steps of the job count batches; what is left at the end of the training changes nothing."""
    ema_decay: DecayRate = 0.0
    """Decay rate of moving averages of the params: a = ema_decay a + (1 - ema_decay) w after each update, from the
    initial values on; 0 keeps none. Checkpoints have both. Tests and validations of a training take the values; test,
    predict, export and serve take the averages where the job says ema_decay. Running statistics have no average."""
    scales: Many[ScaleConf] = Field(default=[])
    """Factors of learning rate and weight decay of all params whose names fit a pattern, beside those of the params."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's own updater."""

    def scales_of(self, param: str, lr_scale: float, wd_scale: float) -> tuple[float, float]:
        """Return the factors of a param that has some of its own, with those of all patterns that it fits."""
        for scale in self.scales:
            if fnmatchcase(param, scale.param):
                lr_scale, wd_scale = lr_scale * scale.lr_scale, wd_scale * scale.wd_scale
        return lr_scale, wd_scale


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
        yield from _check_updates(data)
        yield from check_measured(data)
        yield from check_metrics(raw_value(data, "metrics", object, []))
        yield from _divide_batches(data)


def _check_updates(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that the topology and the algorithm are such that gradients can be clipped by their norm, or added up."""
    updater, cluster = (raw_value(data, key, object, {}) for key in ("updater", "cluster"))
    groups, servers = (raw_value(cluster, f"n{key}", int, 1) for key in ("worker_groups", "servers_per_group"))
    alg = raw_value(raw_value(data, "train_one_batch", object, {}), "alg", str, "BP").removeprefix("k")
    norm, decay = (raw_value(updater, key, object, 0) for key in ("clip_norm", "ema_decay"))
    if isinstance(decay, int | float) and decay > 0 and raw_value(cluster, "nserver_groups", int, 1) > 1:
        yield ("updater", "ema_decay"), "several server groups change params without an average. Say nserver_groups: 1."
    if groups > 1 and raw_value(updater, "accumulate", int, 1) > 1:
        message = f"nworker_groups is {groups}, whose gradients come in any order. Say 1, or one worker group."
        yield ("updater", "accumulate"), message
    if isinstance(norm, int | float) and norm > 0:
        if groups > 1 and servers > 1:
            message = f"the {groups} worker groups need one server a group, which knows all gradients, got {servers}. "
            yield ("updater", "clip_norm"), f"{message}Say nservers_per_group: 1."
        if alg not in ("BP", "BPTT"):
            yield ("updater", "clip_norm"), f"{alg} may not have gradients of all params. Expected BP. Leave it out."


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
