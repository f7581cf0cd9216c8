"""Predictions, layer outputs and metrics of trained nets, for records in memory, Dask collections and stores.

Users import the functions from `singa_dask`.

Records in memory
    `model`: `Model`, the trained net that users load, with its own threads and locks. `model_source`: its job and
    checkpoint. `memory_records`: arrays, tables and pictures as records. `memory_labels`: their labels.
Records in stores
    `stored_net`: `DistributedNet`, a job with checkpoints; any number of workers compute its batches. `tasks`: the
    batches of one worker. `stored_records`: records at a URL. `stored_values`: results as a table. `value_files`: a
    table as text.
Both
    `predicting`: the functions `predict`, `extract` and `test`. `inference_job`: the job of a net that predicts.
    `predicted_layers`: finds the layers to compute. `filled_net`: `FilledNet`, a net for one batch size with the values
    of a checkpoint. `bound_net`: `BoundNet`, which computes the same net faster. `sized_nets`: `SizedNets`, one net for
    each of several batch sizes. `output_decoder`: converts outputs of a layer to classes, probabilities or values.
Related classes are `FittedNet` of `estimators`, which is pickled with its values, and `ExportedNet` of `exports`, which
is written to a file.

`sampling`: writes text.
"""

__all__: list[str] = []
