"""Export of trained nets to ONNX, PyTorch, safetensors and NumPy, and import of weights.

Names are imported on first use, so that a user's module with layers can import the converters cheaply.

`exporting` writes files of an `exported_net`. `encoding` makes the content of the files with `converters`, which are
functions that add a layer to the file. The converters in `onnx_layers` add nodes to an `onnx_graph`; the converters in
`torch_layers` add text to a `torch_source`. `importing` imports weights; `weights` reads and writes their files.
"""

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.exports.converters import ONNX_CONVERTERS, TORCH_CONVERTERS
    from singa_dask.exports.exporting import export
    from singa_dask.exports.importing import import_weights

__all__ = ["ONNX_CONVERTERS", "TORCH_CONVERTERS", "export", "import_weights"]

__getattr__ = lazy_names(
    __name__,
    {
        "converters": ["ONNX_CONVERTERS", "TORCH_CONVERTERS"],
        "exporting": ["export"],
        "importing": ["import_weights"],
    },
)
