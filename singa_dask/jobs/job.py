"""Job: a job read from a file, or built in Python from a net and other keys."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, JobFile, loads
from singa_dask.conf import load as load_file
from singa_dask.conf.files.yaml_text import dump
from singa_dask.errors import ConfigError
from singa_dask.jobs.checks import check, complete, warnings_on
from singa_dask.jobs.net_values import HERE, plain_values
from singa_dask.jobs.pages import JobNets, job_page
from singa_dask.jobs.torch_objects import advice_on


class Job:
    """An immutable job. `replace` returns a changed copy.

    Parameters
    ----------
    net : Net, mapping, or sequence of mapping
        A `Net`, a list of layers, or the block ``neuralnet`` of a job file.
    **keys
        Other keys of a job file, such as ``name``, ``epochs``, ``updater`` or ``cluster``. Pass blocks as dicts.

    Attributes
    ----------
    file : JobFile
        The job together with the position of each key in the file, for errors.

    Raises
    ------
    ConfigError
        The job is wrong. The error lists all mistakes.

    Examples
    --------
    >>> import singa_dask as sd
    >>> records = {"path": "data/digits/train.arrow", "shape": [28, 28], "batchsize": 64, "std_value": 255}
    >>> net = sd.Net(
    ...     [
    ...         sd.layer("RecordInput", name="data", store_conf=records),
    ...         sd.layer("InnerProduct", name="fc", num_output=10),
    ...         sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
    ...     ]
    ... )
    >>> sgd = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.1}}
    >>> job = sd.Job(net, train_steps=10, train_one_batch={"alg": "BP"}, updater=sgd)
    >>> [each.name for each in job.conf.neuralnet.layer]
    ['data', 'fc', 'softmaxloss']
    """

    def __init__(self, net: Mapping[str, Any] | Sequence[Mapping[str, Any]], **keys: Any) -> None:
        block = net if isinstance(net, Mapping) else {"layer": list(net)}
        values = {**keys, "neuralnet": block}
        self.file = loads(dump(plain_values(values), brief=True), HERE, registries=REGISTRIES, with_lines=False)

    @classmethod
    def of(cls, job_file: JobFile) -> Job:
        """Return a `Job` for a `JobFile`."""
        job = cls.__new__(cls)
        job.file = job_file
        return job

    def __setattr__(self, name: str, value: object) -> None:
        if name != "file":
            raise AttributeError(f"a job is immutable. Use job = job.replace({{{name!r}: {value!r}}}).")
        super().__setattr__(name, value)

    @property
    def conf(self) -> JobConf:
        """The model of the job, with all defaults."""
        return self.file.job

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.conf.name

    def replace(self, set: Mapping[str, Any] | None = None, cluster: str | os.PathLike[str] | None = None) -> Job:
        """Return a copy of the job with changed values.

        Parameters
        ----------
        set : mapping of str to Any
            New values by key, such as ``"updater.learning_rate.base_lr"`` or
            ``"neuralnet.layer[fc1].innerproduct_conf.num_output"``.
        cluster : path, optional
            File with a block that replaces ``cluster``, or the name of a topology: allreduce, downpour, hogwild,
            hybrid, sandblaster or single. ``"allreduce:3"`` and ``"hogwild:3"`` are topologies with three workers.

        Raises
        ------
        ConfigError
            A change is wrong. The error lists all mistakes.
        """
        read = loads(self.to_yaml(), HERE, _changes(set), cluster, REGISTRIES, with_lines=False, set_option="set")
        return Job.of(read)

    def nets(self) -> JobNets:
        """Build the nets of the job, and make all checks that are possible without starting the job.

        Raises
        ------
        ConfigError, CheckpointError, DataError
        """
        return JobNets(check(complete(self.file)))

    def warnings(self) -> list[str]:
        """Return warnings about likely mistakes in the job."""
        return [str(problem) for problem in warnings_on(self.file)]

    def to_yaml(self) -> str:
        """Return the text of a job file, without defaults. Loading it returns an equal job."""
        return self.file.given()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the job file."""
        Path(path).write_text(self.to_yaml(), encoding="utf-8")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.conf == other.conf

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        layers = self.conf.neuralnet.layer
        return f"<Job {self.name!r}: {len(layers)} layers, {self.conf.length}>"

    def _repr_html_(self) -> str:
        try:
            nets = check(complete(self.file), check_sources=False)
        except (ConfigError, OSError):
            nets = {}
        return job_page(self.conf, nets)


def load(
    path: str | os.PathLike[str],
    set: Mapping[str, Any] | None = None,
    cluster: str | os.PathLike[str] | None = None,
) -> Job:
    """Read a job file.

    Parameters
    ----------
    path : path
        Job file, in YAML or in SINGA's own format.
    set, cluster
        See `Job.replace`.

    Raises
    ------
    ConfigError
        The job file is wrong. The error lists all mistakes, in the order of the file.
    """
    return Job.of(load_file(path, _changes(set), cluster, REGISTRIES, "set"))


def as_job(job: object) -> Job:
    """Return a `Job` unchanged, or load a job file; raise ConfigError for other objects."""
    if isinstance(job, Job):
        return job
    if not isinstance(job, str | os.PathLike):
        kind = f"{type(job).__module__}.{type(job).__name__}".removeprefix("builtins.")
        raise ConfigError(f"expected a Job or the path of a job file, got {kind}.{advice_on(job)}")
    return load(job)


def _changes(values: Mapping[str, Any] | None) -> Iterable[str]:
    """Return changes as values for the option ``--set``, in JSON, which is also valid YAML."""
    return [f"{key}={json.dumps(plain_values(value))}" for key, value in (values or {}).items()]
