"""Layers that read or write records and texts, and their blocks of the job file.

Records
    `input`: the base class of input layers. `store_reader`: reads batches of a store, and keeps the position in it.
    `store_input`: layers that read the features of records. `targets`: layers that read targets, labels and weights of
    the same records. `writers`: layers that write records to files. `store_conf`: the block that describes records.
    `record_source`: the store that a layer reads, matched with the training data. `open_records`: opens a store with
    the options of the job. `record_shapes`: checks the shapes of records. `read_plan`: decides which records a worker
    reads, and in which order. `normalisation`: subtracts the mean of records, and divides them. `input_context`:
    objects that all layers of a net share.
Images
    `augmentation`: random changes of a batch as it is read. `image_preprocess`: a layer that crops and mirrors a batch.
Texts
    `text`: layers that read and write characters. `sampling`: layers that draw the next character.
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
        "sampling": "RNNDummy Sampling",
        "text": "CharRNN CharRNNOutput",
        "writers": "CSVOutput RecordOutput",
    },
)
