"""Perform the actions of a job's `JobState` that wait for Dask workers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from tornado import gen, util

from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.names import Op
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.job.state import actions as act
from singa_dask.runtime.job.state import events as ev

if TYPE_CHECKING:
    from singa_dask.runtime.job.scheduler.jobs import Jobs

logger = logging.getLogger(__name__)

AGAIN_S = 0.5
"""Seconds until a Dask worker that did not answer is asked again."""


@singledispatch
async def perform(action: Any, record: JobRecord, jobs: Jobs) -> None:
    """Perform an action of a job; see `singa_dask.runtime.job.state.actions`."""
    raise TypeError(f"{type(action).__name__} is not an action of a job")


@perform.register(act.Request)
async def _request(action: act.Request, record: JobRecord, jobs: Jobs) -> None:
    """Repeat a request until the Dask worker answers, because a stalled one must not miss a stop.

    Processes of later incarnations get their own requests, so `Site` does not pass this one to them.
    """
    job_id, state, incarnation = record.spec.job_id, record.state, record.state.incarnation
    while action.worker in state.workers:
        facts = {"job_id": job_id, "incarnation": incarnation, "what": action.what}
        answer = await jobs.sites.ask(action.worker, limit("answer"), Op.REQUEST, **facts)
        if not isinstance(answer, (OSError, util.TimeoutError)):
            break
        await gen.sleep(AGAIN_S)


@perform.register(act.Host)
async def _host(action: act.Host, record: JobRecord, jobs: Jobs) -> None:
    job_id = record.spec.job_id
    await jobs.detached.save(job_id, action.incarnation)
    if record.spec.driver and (why := jobs.detached.taken_over):
        answer: Mapping[str, Any] = {"error": why, "final": True}
    else:
        answer = await jobs.sites.host(record, action)
    jobs.handle(job_id, ev.Hosted(action.incarnation, action.process, **answer))


@perform.register(act.EndIncarnation)
async def _end_incarnation(action: act.EndIncarnation, record: JobRecord, jobs: Jobs) -> None:
    job_id, facts = record.spec.job_id, action._asdict()
    worker = facts.pop("worker")
    answer: Any = {}  # a Dask worker without a `Site` has no units; the plug-in may not be installed yet
    if worker in jobs.sites.workers:
        answer = await jobs.sites.ask(worker, limit("has-ended"), Op.END, job_id=job_id, **facts)
    await jobs.tasks.cancel(jobs.records.get(job_id), action.incarnation, action.process)
    if isinstance(answer, dict):
        jobs.handle(job_id, ev.Ended(action.incarnation, worker, answer, action.process))
    else:
        why = answer or "no answer"
        logger.warning("%s: %s does not end incarnation %d: %s", job_id, worker, action.incarnation, why)


@perform.register(act.CutOff)
async def _cut_off(action: act.CutOff, record: JobRecord, jobs: Jobs) -> None:
    answer = await jobs.sites.ask_process(record.spec.job_id, action, Op.CUT)
    jobs.handle(record.spec.job_id, ev.Cut(action.incarnation, action.process, action.request, **answer))


@perform.register(act.Join)
async def _join(action: act.Join, record: JobRecord, jobs: Jobs) -> None:
    if action.buddy:
        jobs.scheduler.loop.add_callback(jobs.sites.install, action.buddy)
    answer = await jobs.sites.ask_process(record.spec.job_id, action, Op.JOIN)
    jobs.handle(record.spec.job_id, ev.Joined(action.incarnation, action.process, action.request, **answer))


@perform.register(act.Over)
async def _over(action: act.Over, record: JobRecord, jobs: Jobs) -> None:
    job_id = record.spec.job_id
    try:
        await _clean_up(record, action, jobs)
    finally:
        try:
            jobs.tell(job_id, {"event": "over", **asdict(action.end)})
            jobs.history.add(record)
        finally:
            jobs.left_over.add_ended_job()
            jobs.records.pop(job_id, None)
            await jobs.detached.save(job_id)


async def _clean_up(record: JobRecord, action: act.Over, jobs: Jobs) -> None:
    """Remove the tasks, units and snapshots of a job from the cluster."""
    job_id, incarnation = record.spec.job_id, record.state.incarnation
    await jobs.tasks.cancel(record, incarnation)
    jobs.scheduler.loop.add_callback(jobs.sites.end_job, record.spec, incarnation)
    if action.stuck:
        jobs.scheduler.loop.add_callback(jobs.sites.restart, action.stuck)
    if list(jobs.records) == [job_id]:
        await jobs.tasks.close()
