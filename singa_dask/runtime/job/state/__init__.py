"""Decisions about jobs, without I/O.

`job_state`: decides what a job does next. `events`: its events and actions. `placer`: where its units are, and when
they move. `suspects`: Dask workers that failed lately. `restarts`: what a job restarts from, and when. `incarnation`:
the units between two restarts of all of them. `replacement`: replaces lost processes.
"""

__all__: list[str] = []
