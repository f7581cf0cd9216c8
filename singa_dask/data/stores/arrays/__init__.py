"""Files of arrays.

`column`: base of `idx`, `cifar`, `npy` and `npz`. `array_store`: base of `hdf5` and `zarr`.
"""

__all__: list[str] = []
