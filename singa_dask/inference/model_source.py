"""ModelSource: the job and the checkpoint that a model is loaded from."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from singa_dask import fs, modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobFile, loads
from singa_dask.errors import CheckpointError
from singa_dask.fs.open_bytes import decode_text
from singa_dask.inference.inference_job import reading_of, with_reading
from singa_dask.jobs.job import Job, as_job
from singa_dask.observe.files.stored_run import run_of
from singa_dask.runtime.checkpoints import singa_checkpoint
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.checkpoints.lookup import find_steps, find_values

ON_CPU = ("gpu=[]", "ops=auto")


@dataclass(frozen=True)
class ModelSource:
    """The job and the checkpoint that a model is loaded from.

    Attributes
    ----------
    url : str
        URL of the model as the user wrote it, for messages.
    job : str
        Text of the job file, with all defaults written out.
    checkpoint : str
        URL of a checkpoint, or of a SINGA checkpoint file.
    step : int
    digest : str
        Checksum of the checkpoint's manifest.
    sources : tuple of Source
        The user's own modules.
    """

    url: str
    job: str
    checkpoint: str
    step: int
    digest: str
    sources: tuple[modules.Source, ...] = ()

    def job_file(self) -> JobFile:
        """Parse the job."""
        return loads(self.job, f"{self.url}: job", registries=REGISTRIES, with_lines=False)

    def reading(self, missing: str | float | None, unknown: str | None) -> ModelSource:
        """Return a source whose job has these settings for missing and unknown values; see `load_model`."""
        reading = reading_of(missing, unknown)
        if not reading:
            return self
        read = self.job_file()
        return replace(self, job=replace(read, job=with_reading(read.job, self.url, reading)).resolved())

    def check(self) -> None:
        """Raise a CheckpointError if the checkpoint no longer exists, or its values have changed."""
        try:
            version = _version_of(self.checkpoint)
        except CheckpointError as error:
            raise CheckpointError(
                f"{error} A model that is sent to another process is loaded there from its URL, which every host must "
                "be able to read."
            ) from error
        if version != (self.step, self.digest):
            raise CheckpointError(f"{self.checkpoint}: changed since the model was loaded. Load the model again.")


def find_source(
    url: str,
    step: int | None = None,
    job: Job | str | os.PathLike[str] | None = None,
    cpu: bool = False,
    threads: int | None = None,
    missing: str | float | None = None,
    unknown: str | None = None,
) -> ModelSource:
    """Find the job and the checkpoint of a model; see `load_model`."""
    url = fs.absolute(url)
    if job is None:
        run = run_of(url)
        resolved = fs.join(run, "resolved.yaml")
        text = decode_text(resolved)
    else:
        given_job = as_job(job)
        resolved, text = given_job.name, given_job.file.resolved()
    sets = (*(ON_CPU if cpu else ()), *(() if threads is None else (f"threads={threads}",)))
    read = loads(text, resolved, sets, registries=REGISTRIES, with_lines=False)
    checkpoint = find_values(url if step is None else _of_step(url, step))
    InitialValues(read.job, (checkpoint,)).learned_to_predict()
    sources = tuple(modules.read(read.job.modules))
    found = ModelSource(url, read.resolved(), checkpoint, *_version_of(checkpoint), sources)
    return found.reading(missing, unknown)


def _of_step(url: str, step: int) -> str:
    steps = find_steps(url)
    if step not in steps:
        known = ", ".join(map(str, sorted(steps))) or "none"
        raise CheckpointError(f"{url}: no checkpoint of step {step}. Steps: {known}.")
    return steps[step]


def _version_of(checkpoint: str) -> tuple[int, str]:
    """Return the step of a checkpoint and the checksum of its manifest."""
    place = singa_checkpoint.parse(checkpoint)
    if place and not fs.is_dir(checkpoint):
        return place[1], str(fs.size(checkpoint))
    stored = Checkpoint(checkpoint)
    return stored.step, str(stored.manifest.get("sha256", ""))
