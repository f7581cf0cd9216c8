"""ModelSource: the job and the checkpoint of a model, as plain values that any process can load it from."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import NamedTuple

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobFile, Phase, loads
from singa_dask.data import fs
from singa_dask.errors import CheckpointError, ConfigError
from singa_dask.jobs.job import Job, load
from singa_dask.observe.stored_run import StoredRun
from singa_dask.runtime.checkpoints import singa_checkpoint
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.lookup import find_steps, find_values
from singa_dask.runtime.inference.job import PhaseJob, inference_job

ON_CPU = ("gpu=[]", "ops=auto")


class Version(NamedTuple):
    """Which values a checkpoint had: its step, and the checksum of its manifest."""

    step: int
    digest: str


@dataclass(frozen=True)
class ModelSource:
    """What a model is loaded from.

    Attributes
    ----------
    url : str
        As the user knows it, for messages.
    job : str
        Text of the job, with every default.
    checkpoint : str
        URL of a step, or of a file of SINGA's.
    version : Version
    sources : tuple of Source
        The user's own modules.
    """

    url: str
    job: str
    checkpoint: str
    version: Version
    sources: tuple[modules.Source, ...] = ()

    def job_file(self) -> JobFile:
        """Return the job."""
        return loads(self.job, f"{self.url}: job", registries=REGISTRIES, with_lines=False)

    def phase_job(self, exposed: bool) -> PhaseJob:
        """Return the job with the layers of the test net; see `inference_job`."""
        read = self.job_file()
        try:
            return inference_job(read.job, Phase.TEST, in_order=True, exposed=exposed)
        except ConfigError as error:
            raise read.locate(error) from None

    def check(self) -> None:
        """Check that the checkpoint is there, and has the values that it had.

        Raises
        ------
        CheckpointError
        """
        try:
            found = _version_of(self.checkpoint)
        except CheckpointError as error:
            raise CheckpointError(
                f"{error} A model that is sent to another process is loaded there from its URL. Every host has to be "
                "able to read it."
            ) from error
        if found != self.version:
            raise CheckpointError(
                f"{self.checkpoint}: has other values now than when the model was loaded. Load it again."
            )


def find_source(
    url: str,
    step: int | None = None,
    job: Job | str | os.PathLike[str] | None = None,
    cpu: bool = False,
    threads: int | None = None,
) -> ModelSource:
    """Find the job and the checkpoint of a model; see `load_model`."""
    url = fs.absolute(url)
    if job is None:
        run = _run_of(url)
        resolved = fs.join(run, "resolved.yaml")
        text = fs.read_bytes(resolved).decode()
    else:
        found = job if isinstance(job, Job) else load(job)
        resolved, text = found.name, found.file.resolved()
    sets = (*(ON_CPU if cpu else ()), *(() if threads is None else (f"threads={threads}",)))
    read = loads(text, resolved, sets, registries=REGISTRIES, with_lines=False)
    checkpoint = find_values(url if step is None else _of_step(url, step))
    sources = tuple(modules.read(read.job.modules))
    return ModelSource(url, read.resolved(), checkpoint, _version_of(checkpoint), sources)


def _run_of(url: str) -> str:
    """Return the run directory that a URL is, or is in."""
    parent, _, name = url.rpartition("/")
    if re.fullmatch(r"step-\d+", name):
        url = parent.removesuffix("/checkpoint")
    elif name == "checkpoint":
        url = parent
    try:
        return StoredRun(url).url
    except ConfigError as error:
        raise ConfigError(f"{error} For a checkpoint without a run give its job: job=.") from None


def _of_step(url: str, step: int) -> str:
    steps = find_steps(url)
    if step not in steps:
        known = ", ".join(map(str, sorted(steps))) or "none"
        raise CheckpointError(f"{url}: no checkpoint of step {step}. Steps: {known}.")
    return steps[step]


def _version_of(checkpoint: str) -> Version:
    place = singa_checkpoint.parse(checkpoint)
    if place and not fs.is_dir(checkpoint):
        return Version(place[1], str(fs.size(checkpoint)))
    found = Checkpoint(checkpoint)
    return Version(found.step, str(found.manifest.get("sha256", "")))
