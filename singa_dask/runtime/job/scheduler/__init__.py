"""The part of a job that runs on Dask's scheduler.

`jobs`: carries out the decisions of `state.job_state`. `record`: the state of a job. `job_facts`: the facts that users
see. `views`: answers to users. `event_log`: the newest events. `group_metrics`: averages metrics over workers.
`stalls`: detects jobs that make no steps. `evidence`: finds out which silent processes are alive. `history`: jobs that
have ended. `heartbeats`: detects lost Dask workers. `seen_workers`: free threads. `sites`: calls Dask workers.
`unit_tasks`: tasks that run units on Dask workers. `job_queue`: the queued jobs. `drivers`: starts drivers of detached
jobs. `demand`: counts the Dask workers that jobs need. `kept`: saves detached jobs for the next scheduler.
"""

__all__: list[str] = []
