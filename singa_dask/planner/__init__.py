"""Planner: predict the speed of a job on a cluster, and choose its topology.

`search`: the search for the best topology. `model`: a cluster and predictions for it. `what_if`: hypothetical clusters.
Simulation
    `simulation`: steps of a job in virtual time. `virtual_time`: simulated cores and network. `phantoms`: arrays
    without data. `many`: jobs with very many processes. `failures`: time lost to failures, in closed form.
Measured on this machine
    `costs`: times of the work of a job. `loop`: times training steps. `reading`: times reading records. `links`:
    measures connections.
`report`: results as values, a job file and a page.
"""

__all__: list[str] = []
