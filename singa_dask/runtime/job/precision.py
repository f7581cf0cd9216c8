"""The precision of a job that says ``auto``: bfloat16 where some steps are clearly faster so, else float32."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from distributed import Client
from distributed.comm.addressing import get_address_host

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError
from singa_dask.layers import StoreInput
from singa_dask.ops import get_ops
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.planning.loop import Loop
from singa_dask.runtime.planning.nets import with_batchsize
from singa_dask.runtime.planning.placement import Layout, n_threads

if TYPE_CHECKING:
    from singa_dask.runtime.job.placing import Runner

MIN_GAIN = 1.1
"""How many times as fast steps have to be in bfloat16."""
ROUNDS, SLOW_S, PART = 2, 0.5, 8
"""Rounds of measuring; a step that takes longer is measured with a part of the batch."""


def choose_precision(
    job: JobConf,
    client: Client,
    layout: Layout,
    workers: Sequence[str],
    sources: Sequence[modules.Source],
    resume: str | None,
    run: Runner,
) -> tuple[str, str]:
    """Choose between float32 and bf16, by a task on the first Dask worker of a job.

    Parameters
    ----------
    job : JobConf
    client : Client
    layout : Layout
        The units of each process.
    workers : sequence of str
        Address of the Dask worker of each process.
    sources : sequence of Source
        The user's own modules.
    resume : str or None
        Checkpoint that the job goes on from: it keeps its precision.
    run : Runner
        On the first of the ``workers``.

    Returns
    -------
    (str, str)
        The precision, and a line that says why.
    """
    slow = [address for address, is_fast in client.run(_is_fast, workers=list(workers)).items() if not is_fast]
    hosts = [get_address_host(address) for address in workers]
    here = [units for host, units in zip(hosts, layout.processes, strict=True) if host == hosts[0]]
    n_workers = sum(unit.kind == "worker" for units in here for unit in units)
    task = partial(
        _choose, job.model_dump_json(), sources, resume, n_workers, get_address_host(slow[0]) if slow else ""
    )
    ((precision, reason),) = run([task])
    return precision, f"precision: {precision}, {reason}"


def _is_fast() -> bool:
    """Tell whether this machine has instructions for bfloat16."""
    try:
        get_ops("auto", "bf16")
    except ConfigError:
        return False
    return True


def _choose(
    text: str, sources: Sequence[modules.Source], resume: str | None, n_workers: int, slow: str
) -> tuple[str, str]:
    """Return the precision and the reason, on a Dask worker with ``n_workers`` on its host; ``slow``: a slow host."""
    modules.load(sources, REGISTRIES.values())
    kept = Checkpoint(resume).manifest.get("precision") if resume else None
    if kept:
        return kept, "as before"
    if slow:
        return "float32", f"as {slow} has no instructions for bf16"
    job = JobConf.from_json(text, REGISTRIES)
    try:
        gain = measure_gain(job, n_threads(job, n_workers))
    except ConfigError as error:
        return "float32", f"as bf16 is not possible: {error}"
    return ("bf16" if gain >= MIN_GAIN else "float32"), f"as bf16 is {gain:.2f} times as fast as float32"


def measure_gain(job: JobConf, threads: int) -> float:
    """Return how many times as fast a training step is in bf16 as in float32, here.

    Raises
    ------
    ConfigError
        A layer, or this machine, does not compute in bf16.
    """
    loops = _loops(job)
    started = time.perf_counter()
    loops[0].step()
    if time.perf_counter() - started > SLOW_S:
        batch = max(layer.batch_size for layer in loops[0].net.inputs if isinstance(layer, StoreInput))
        loops = _loops(with_batchsize(job, max(batch // PART, job.cluster.nworkers_per_group)))
    rounds = [[loop.measure(threads)[2] for loop in loops] for _ in range(ROUNDS)]
    exact_s, coarse_s = map(min, zip(*rounds, strict=True))
    return float(exact_s / coarse_s)


def _loops(job: JobConf) -> list[Loop]:
    return [Loop(job.model_copy(update={"precision": precision})) for precision in ("float32", "bf16")]
