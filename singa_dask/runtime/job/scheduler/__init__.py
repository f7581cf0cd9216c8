"""What Dask's scheduler does for jobs.

`jobs`: carries out what `state.job_state` decides. `views`: what people ask. `record`: what is known of a job.
`job_facts`: what is shown of it. `event_log`: its events. `group_metrics`: means over workers. `stalls`: jobs that
make no steps. `evidence`: processes that are silent, and live. `history`: jobs that have ended. `heartbeats`: Dask
workers that are lost. `sites`: calls to Dask workers. `unit_tasks`: tasks that run units there. `line`: jobs that
wait. `drivers`: where drivers of detached jobs run. `demand`: how many Dask workers are wanted. `kept`: detached jobs,
for the next scheduler.
"""

__all__: list[str] = []
