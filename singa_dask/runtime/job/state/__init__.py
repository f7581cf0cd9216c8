"""Decisions about jobs, without I/O.

`job_state`: decides what a job does next. `events`: its inputs. `actions`: its decisions. `submission`: a job as plain
values. `placer`: decides where units run. `move`: a move of the units to other Dask workers. `stop`: a request to stop
the job. `deadlines`: the waits of a job. `suspects`: Dask workers that have failed recently. `restarts`: decides from
which snapshot or checkpoint a job restarts, and when. `incarnation`: the state of a job between two restarts.
`replacement`: replaces lost processes while others continue. `job_facts`: what users see of a job.
"""

__all__: list[str] = []
