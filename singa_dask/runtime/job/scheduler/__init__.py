"""The scheduler's side of jobs.

`jobs`: carries out the decisions of `state.job_state`. `record`: the state of a job. `job_facts`: the facts that users
see. `views`: answers to users. `event_log`: events. `group_metrics`: means over workers. `stalls`: jobs without steps.
`evidence`: silent processes that live. `history`: jobs that have ended. `heartbeats`: lost Dask workers. `sites`: calls
to Dask workers. `unit_tasks`: tasks that run units there. `line`: the queue of jobs. `drivers`: drivers of detached
jobs. `demand`: the number of Dask workers that jobs need. `kept`: detached jobs that are saved for the next scheduler.
"""

__all__: list[str] = []
