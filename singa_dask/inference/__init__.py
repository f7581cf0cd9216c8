"""Predictions, layer outputs and metrics of trained nets, for records in memory, Dask collections and stores.

Users import the functions from `singa_dask`.

Records in memory
    `model`: `Model`, what users load: a checkpoint with its own threads and locks. `records`: arrays, tables and
    pictures as records.
Records in stores
    `stored`: `DistributedNet`, a job and checkpoints whose batches any number of workers compute. `tasks`: the batches
    of one worker. `stored_records`: records at a URL. `layer_values`: results as text or a table.
Both
    `predicting`: the functions `predict`, `extract` and `test`. `net`: `LoadedValues`, the values of a checkpoint;
    `FilledNet`, a net of one batch size with these values; `SizedNets`, such nets of several batch sizes.
    `derived_job`: the job of such a net. `predicted_layers`: the layers to compute.
Elsewhere, a `FittedNet` of `estimators` is pickled with its values, and an `ExportedNet` of `exports` is what an export
writes.

`sampling`: writes text.
"""

__all__: list[str] = []
