"""Layers that read records and texts or write them to files, and their blocks of the job file.

Records
    `input`: the base of all. `store_reader`: batches of a store, and the position in it. `store_input`: the features of
    a batch of records. `targets`: targets, labels and weights of the same records. `writers`: layers that write records
    to files.
    `store_conf`: the block that describes records. `record_source`: the store that a layer reads, matched with the
    training data. `open_records`: opens it. `record_shapes`: checks its shapes. `read_plan`: which records a worker
    reads, in which order. `normalisation`: mean and divisor. `input_context`: what the layers of a net share.
Images
    `augmentation`: random changes of a batch as it is read. `image_preprocess`: a layer that crops and mirrors a batch.
Texts
    `text`: layers that read, sample and write characters.
"""

from singa_dask.inputs.input import InputLayer
from singa_dask.inputs.input_context import InputContext
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.inputs.store_input import StoreInput
from singa_dask.layers import LAYERS

__all__ = ["InputContext", "InputLayer", "StoreConf", "StoreInput"]

LAYERS.add_modules(
    __name__,
    {
        "image_preprocess": "ImagePreprocess",
        "store_input": "CSVInput RecordInput",
        "targets": "LabelInput TargetInput WeightInput",
        "text": "CharRNN CharRNNOutput RNNDummy Sampling",
        "writers": "CSVOutput RecordOutput",
    },
)
