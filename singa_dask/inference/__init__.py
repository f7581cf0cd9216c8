"""Predictions, layer outputs and metrics of trained nets, for records in memory, Dask collections and stores.

Users import the functions from `singa_dask`.

Records in memory
    `model`: `Model`, a trained net with its own threads and locks. `records`: arrays, tables and pictures as records.
Records in stores
    `stored`: `StoredNet`, a trained net whose batches any number of workers compute. `tasks`: the batches of one
    worker. `stored_records`: records at a URL. `layer_values`: results as text or a table.
Both
    `predicting`: the functions `predict`, `extract` and `test`. `net`: `TrainedNet`, nets with the values of a
    checkpoint for each batch size; `ReadyNet`, one of them. `derived_job`: the job of such a net.
    `predicted_layers`: the layers to compute.
`sampling`: writes text.
"""

__all__: list[str] = []
