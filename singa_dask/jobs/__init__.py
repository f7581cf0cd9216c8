"""Jobs and runs as Python objects, used by the command line, too; users import them from `singa_dask`.

A job
    `job`: from a file or from Python. `net_values`, `nn`: nets in Python. `job_checks`: checks by nets and
    records. `datasets`: data of Python objects.
A run
    `preparing`: chooses its run directory. `starting`: starts it. `run`: the run itself. `cluster`: where it
    runs. `pages`: HTML for notebooks.
Experiments
    `planning`: the fastest topology. `rates`: a learning rate.
"""

__all__: list[str] = []
