"""What becomes of a job, decided without I/O.

`job_state`: decides what happens to a job. `events`: what it is told, and what it wants done. `placer`: where its units
are, and when they move. `suspects`: Dask workers that failed lately. `restarts`: what a job restarts from, and when.
`life`: what is known of one life. `replacement`: of processes that are lost.
"""

__all__: list[str] = []
