"""Models that leave and come: export to ONNX, PyTorch, safetensors and NumPy, and import of weights.

Names are imported on first use, so that a module with layers of a user's own can import the converters cheaply.

`exporting` writes an `exported_net` by the `converters` of its layers, which are in `onnx_layers` and `torch_layers`.
`importing` reads weights; `weights` are files of them.
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
