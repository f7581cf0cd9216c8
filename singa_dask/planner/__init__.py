"""Planner: predict the speed of a job on a cluster, and choose its topology.

Search
    `search`: finds the best topology. `model`: describes clusters, costs and predictions. `what_if`: hypothetical
    clusters. `report`: results as values, a job file and a page.
Simulation
    `simulation`: simulates steps of a job in virtual time. `virtual_time`: simulated cores and network. `phantoms`:
    arrays without data. `many`: simulates jobs with very many processes. `failures`: computes the time that failures
    cost.
Measurements on this machine
    `costs`: times of the work of a job. `cost_table`: keeps them in a file. `neighbours`: keeps all other cores busy
    during measurements. `loop`: times training steps. `reading`: times reading records. `links`: measures connections.
"""

__all__: list[str] = []
