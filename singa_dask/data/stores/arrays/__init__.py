"""Files of arrays.

`stored_array`: arrays in files. `column`: the base of `idx`, `npy` and `npz`. `array_store`: the base of `hdf5` and
`zarr`.
"""

__all__: list[str] = []
