"""Layers that read records and texts, or write them to files, and how a job describes these.

Records
    `input`: the features of a batch of records. `targets`: targets, labels and weights of the same records. `writers`:
    layers that write records to files.
    `store_conf`: what a job says of the records. `open_records`: opens them. `record_shapes`: compares their shapes.
    `input_context`: what a net tells the layers that read them.
Images
    `augmentation`: random changes of a batch, as it is read. `image_preprocess`: crops and mirrors it in a layer.
Texts
    `text`: characters in, drawn, and written out.
"""

from singa_dask.inputs.input import InputLayer, StoreInput
from singa_dask.inputs.input_context import InputContext
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers import LAYERS

__all__ = ["InputContext", "InputLayer", "StoreConf", "StoreInput"]

LAYERS.add_modules(
    __name__,
    {
        "image_preprocess": "ImagePreprocess",
        "input": "CSVInput RecordInput",
        "targets": "LabelInput TargetInput WeightInput",
        "text": "CharRNN CharRNNOutput RNNDummy Sampling",
        "writers": "CSVOutput RecordOutput",
    },
)
