"""Arrays and frames as data of a job. They are written to files, one per partition, for input layers.

`making` creates a `Dataset`, defined in `records`, from arrays or frames. `array_records` and `frame_records` write its
partitions. `lazy_parts` has the partitions of Dask collections. `binding` checks the datasets of a job, and connects
them to its layers. `hosts` places the files on the hosts of a cluster, or on this machine.
"""

__all__: list[str] = []
