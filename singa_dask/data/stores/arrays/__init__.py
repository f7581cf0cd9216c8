"""Files of arrays.

`column`: the base of `idx`, `cifar`, `npy` and `npz`. `array_store`: the base of `hdf5` and `zarr`.
"""

__all__: list[str] = []
