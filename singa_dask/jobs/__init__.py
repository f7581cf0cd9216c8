"""Jobs and runs as Python objects.

Users import them from `singa_dask`; the command line uses them, too.

A job
    `job`: jobs from files or from Python. `net_values`, `nn`: nets in Python. `checks`: checks of a job's nets and
    records. `datasets`: arrays and frames as data of a job. `torch_jobs`, `torch_objects`: jobs of modules of PyTorch.
A run
    `prepared_run`: checks a job, and chooses its run directory. `train`: starts a run. `run`: the run itself.
    `cluster`: the Dask cluster of a run. `pages`: HTML for notebooks.
Experiments
    `plan`: finds the fastest topology. `find_rate`: finds a learning rate.
"""

__all__: list[str] = []
