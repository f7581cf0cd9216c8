"""Training from Python: `start` a job, or `train` it to its end."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from distributed import Client

from singa_dask import modules
from singa_dask.conf import JobConf
from singa_dask.conf.foreign_names import suggest_key
from singa_dask.errors import ConfigError
from singa_dask.jobs.checks import warnings_on
from singa_dask.jobs.cluster import check_client, cluster_of
from singa_dask.jobs.datasets.binding import check_data, fit_to_data
from singa_dask.jobs.datasets.hosts import local_parts, with_data_files
from singa_dask.jobs.datasets.making import as_datasets
from singa_dask.jobs.job import Job, as_job
from singa_dask.jobs.prepared_run import changes_of, prepare_run
from singa_dask.jobs.run import AnyRun, Run, Training, urls_of
from singa_dask.jobs.torch_jobs import is_module, module_job
from singa_dask.observe import start_progress
from singa_dask.runtime import Result, plan_processes
from singa_dask.runtime.job.client.cluster import check_processes


class RunOptions(TypedDict, total=False):
    """Keyword arguments of `start` for any job."""

    data: Any
    client: Client | str | None
    run_dir: AnyRun | None
    resume: AnyRun | bool
    overwrite: bool
    init_from: AnyRun | Sequence[AnyRun]
    queue: bool
    priority: int
    progress: bool
    on_event: Callable[[Mapping[str, Any]], None] | None


def start(
    job: Job | str | os.PathLike[str] | Mapping[str, Any] | Callable[..., Any],
    *,
    data: Any = None,
    client: Client | str | None = None,
    run_dir: AnyRun | None = None,
    resume: AnyRun | bool = False,
    overwrite: bool = False,
    init_from: AnyRun | Sequence[AnyRun] = (),
    queue: bool = False,
    priority: int = 0,
    progress: bool = True,
    on_event: Callable[[Mapping[str, Any]], None] | None = None,
    **keys: Any,
) -> Run:
    """Start a job, and return when it has started.

    Parameters
    ----------
    job : Job, path, class or function
        A job, or a PyTorch module to train: its class, a function that returns the module, or
        ``nn.TorchModule(Net, dim=64)``. For a module, pass ``data``, ``loss``, ``batchsize`` and keys of a job, too.
    data : mapping of str to Any, or Any, optional
        Data by name, for input layers with ``path: dask://NAME``. A value that is not a mapping becomes
        ``dask://train``. A value is an array of NumPy, Dask or xarray, a frame of pandas or Dask, a pyarrow Table, or a
        pair (X, y) of such objects; see `as_dataset` in `singa_dask.jobs.datasets.making`. The data are written to
        files during the run, one partition at a time.
    client : distributed.Client or str, optional
        Client of the Dask cluster to run on, or the address of its scheduler. By default, a cluster of the job's size
        is started for this job. If this cluster has several processes, a script needs ``if __name__ == "__main__":``,
        as multiprocessing does.
    run_dir : str, path or Run, optional
        URL of the run directory. The default is a new directory in the job's ``cluster.workspace``, or in ``runs/``.
    resume : Run, str, path or bool
        A run to resume, its URL, or the URL of one of its checkpoints. True resumes the run in ``run_dir``, or else the
        newest run of this job.
    overwrite : bool
        Whether to replace an existing run in ``run_dir``.
    init_from : Run, str, path or sequence of them
        Runs or checkpoints with initial values. If several contain a param, the values in the last checkpoint are used.
    queue : bool
        Whether to wait in the queue of the cluster if it has no room for the job.
    priority : int
        Priority in the queue. Jobs of higher priority start first.
    progress : bool
        Whether to show progress, on stderr or below the cell of a notebook.
    on_event : callable, optional
        Called in another thread with each event of the job, such as metrics, checkpoints, warnings and restarts. An
        event is a dict. If the function raises an error, the job stops with a checkpoint, and the error is raised at
        the end.
    **keys
        Only for a PyTorch module: ``loss``, ``batchsize``, optionally ``shuffle``, and keys of a job, such as
        ``updater``, ``epochs`` and ``cluster``. ``loss`` is ``"cross_entropy"``, ``"mse"``, a layer, or a class or
        function that takes outputs, and labels or targets.

    Raises
    ------
    ConfigError, CheckpointError, DataError
        The job is wrong. Nothing was started.
    ClusterError
        The job does not fit the cluster.
    TypeError
        Other keys were passed.
    """
    if modules.is_loading():
        raise ConfigError(
            "a job loads this file as a module, and the file starts a job. Put the call of sd.train or sd.start under "
            "if __name__ == '__main__':"
        )
    if is_module(job):
        job, data = module_job(job, data, client, **keys)
    else:
        _check_keys(keys)
    job = as_job(job)
    check_client(client, "sd.train, job")
    checkpoints = urls_of(init_from)
    elsewhere = client is not None
    if resume and checkpoints:
        raise ConfigError(
            "resume takes the whole state from a checkpoint, and init_from only values. Pass one of them."
        )
    if overwrite and (resume or not run_dir):
        raise ConfigError("overwrite replaces the run in run_dir. Pass run_dir without resume.")
    if queue and not elsewhere:
        raise ConfigError("queue needs an existing cluster. Pass its client.")
    if not elsewhere and len(plan_processes(job.conf.cluster).processes) > 1:
        check_processes()
    datasets = as_datasets(data, client)
    check_data(job.file, datasets, needed=not elsewhere)
    with job.file.located():
        conf, datasets = fit_to_data(job.conf, datasets)
    with contextlib.ExitStack() as stack:
        prepared = prepare_run(
            replace(job.file, job=conf),
            run_dir=None if run_dir is None else os.fspath(run_dir),
            resume=resume if isinstance(resume, bool) else os.fspath(resume),
            overwrite=overwrite,
            init_from=checkpoints,
            elsewhere=elsewhere,
            # on a cluster, the data is written later, on the hosts of the workers
            write_data=lambda: {} if elsewhere else stack.enter_context(local_parts(datasets)),
        )
        for problem in warnings_on(prepared.job_file, prepared.nets, embedded=not elsewhere):
            warnings.warn(str(problem), stacklevel=2)
        run = prepared.job_run(["singa_dask.start"], queue, priority)
        directory, observers = run.directory(), run.observers()
        files = stack.pop_all()
    conf = prepared.job_file.job
    reporter = start_progress(conf.cluster.nworker_groups, conf.train_steps, not progress, run_url=run.run_url)
    for line in changes_of(prepared.job_file, prepared.location):
        reporter.on_event({"event": "notice", "message": line})

    def carry_out(training: Training) -> Result:
        def tell(event: dict[str, Any]) -> None:
            if event["event"] in ("started", "queued"):
                training.has_begun.set()
            reporter.on_event(event)
            if on_event is not None:
                on_event(event)

        with files, cluster_of(conf, client) as cluster, with_data_files(run, cluster, datasets) as there, reporter:
            result, _ = there.carry_out(cluster, directory, observers, tell, training.take_driver)
        return result

    training = Training(carry_out)
    try:
        training.has_begun.wait()
    except KeyboardInterrupt:
        training.stop("SIGINT")
        raise
    if training.ended.done():
        training.ended.result()  # raises the error of a job that could not be started
    return Run(run.run_url, training)


def _check_keys(keys: Mapping[str, Any]) -> None:
    """Raise TypeError for arguments that `start` accepts only with a PyTorch module, or not at all."""
    for key in keys:
        hint = suggest_key(key, RunOptions.__annotations__)
        if key in JobConf.model_fields:
            hint = f"It is a key of the job: train(job.replace({{{key!r}: {keys[key]!r}}}))."
        raise TypeError(f"train: unknown argument {key!r}. {hint}")


def train(job: Job | str | os.PathLike[str] | Mapping[str, Any] | Callable[..., Any], **given: Any) -> Run:
    """Train a job, or a module of PyTorch, to its end.

    Ctrl-C, or the stop button of a notebook, stops the job with a checkpoint. Press it twice to abort the job.

    Parameters
    ----------
    job : Job, path, class or function
        See `start`.
    **given
        See `start`.

    Raises
    ------
    SingaError
        The job cannot be started (see `start`), or it failed (see `Run.wait`).
    """
    __tracebackhide__ = True
    run = start(job, **given)
    try:
        run.wait()
    except KeyboardInterrupt:
        run._stop("SIGINT")
        try:
            run.wait()
        except KeyboardInterrupt:
            run._stop("SIGINT")
            run.wait()
        # raise a new exception, without the traceback of the wait
        raise KeyboardInterrupt(f"{run.url}: the job is {run.state} at step {run.summary.get('steps', 0)}.") from None
    return run
