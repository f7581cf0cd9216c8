"""Data of Python objects for jobs: arrays and frames are written as part files, which input layers read.

`making`: makes a `Dataset`, defined in `records`, of arrays or frames. `array_records`, `frame_records`: write their
partitions. `lazy_parts`: partitions of Dask collections. `binding`: checks and connects the datasets of a job.
`hosts`: places the files on the hosts of a cluster, or on this machine.
"""

__all__: list[str] = []
