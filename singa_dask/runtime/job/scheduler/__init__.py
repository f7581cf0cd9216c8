"""The part of a job that runs on Dask's scheduler.

Jobs
    `jobs`: the plug-in, which passes events to `state.job_state`. `performing`: performs its actions. `record`: the
    state of a job. `history`: jobs that have ended. `job_queue`: queued jobs. `detached_jobs`: starts drivers
    of detached jobs. `detached_job`: one of them. `saved_jobs`: saves them for the next scheduler.
Dask workers
    `sites`: calls Dask workers. `unit_tasks`: tasks that run units on them. `seen_workers`: counts their free
    threads. `heartbeats`: detects lost Dask workers. `evidence`: finds out which silent processes are alive.
    `demand`: counts the Dask workers that jobs need. `departures`: moves units away from Dask workers that close.
    `left_over`: ends incarnations that Dask workers did not end in time.
For users
    `views`: answers to users. `event_log`: the newest events. `group_metrics`: averages metrics over workers.
    `stalls`: detects jobs that make no steps.
"""

__all__: list[str] = []
