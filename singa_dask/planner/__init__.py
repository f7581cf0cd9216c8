"""Planner: predicts what a job takes on a cluster, and chooses its topology.

`search`: the search for the best topology. `model`: a cluster and predictions for it. `what_if`: clusters that do not
exist.
Simulation
    `simulation`: steps of a job in virtual time. `virtual_time`: simulated cores and network. `phantoms`: arrays
    without data. `many`: jobs of very many processes. `failures`: time lost to failures, in closed form.
Measured on this machine
    `costs`: work of a job. `loop`: training steps. `reading`: records. `links`: connections.
`report`: results as values, a job file and a page.
"""

__all__: list[str] = []
