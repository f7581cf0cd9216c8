"""Cases: how each layer is tested on every backend and in every net.

A test file of this room lists them as ``CASES``, losses included. Each passes the exam of `singa_dask.testing`, and is
computed by the workers of a group and by a GPU.
"""

from __future__ import annotations

import importlib
import pkgutil

import tests.layers
from singa_dask.testing.case import Case

__all__ = ["all_cases", "exam_cases", "shown"]


def all_cases() -> list[Case]:
    """Return the cases of all test files of this room."""
    names = sorted(info.name for info in pkgutil.iter_modules(tests.layers.__path__) if info.name.startswith("test_"))
    modules = [importlib.import_module(f"tests.layers.{name}") for name in names]
    return [case for module in modules for case in getattr(module, "CASES", [])]


def shown(case: Case) -> str:
    """Return the id of a test of a case."""
    return f"{case.kind} {'+'.join('x'.join(map(str, shape)) for shape in case.shapes)}"


def exam_cases() -> list[Case]:
    """Return `all_cases`, and those of layers whose tests list none."""
    return [*all_cases(), *MORE]


MORE = [
    Case("InnerProduct", [(3, 2, 4, 5)], {"innerproduct_conf": {"num_output": 6}}),
    Case("InnerProduct", [(3, 7)], {"innerproduct_conf": {"num_output": 6, "transpose": True, "bias_term": False}}),
    Case("ReLU", [(3, 2, 4, 5)], {"relu_conf": {"negative_slope": 0.1}}),
    Case("Sigmoid", [(3, 7)]),
    Case("Tanh", [(3, 2, 4, 5)]),
    Case("STanh", [(3, 7)]),
    Case("Activation", [(3, 7)], {"activation_conf": {"type": "RELU"}}),
    Case("Softmax", [(3, 8)], {"softmax_conf": {"num_softmax_per_instance": 2}}),
    Case("Softmax", [(3, 4, 2, 3)], {"softmax_conf": {"num_softmax_per_instance": 6}}),
    Case("Dropout", [(6, 2, 4, 5)], n_steps=2),
    Case("Convolution", [(3, 2, 6, 5)], {"convolution_conf": {"num_filters": 4, "kernel": 3, "pad": 1}}),
    Case(
        "Convolution", [(3, 6, 7)], {"convolution_conf": {"num_filters": 3, "kernel_x": 3, "kernel_y": 2, "stride": 2}}
    ),
    Case("Convolution", [(3, 4, 6, 5)], {"convolution_conf": {"num_filters": 6, "groups": 2, "pad": 1}}),
    Case("Convolution", [(3, 4, 6, 5)], {"convolution_conf": {"num_filters": 8, "groups": 4, "dilation": 2}}),
    Case("ConvTranspose", [(3, 2, 4, 5)], {"convtranspose_conf": {"num_filters": 4, "kernel": 2, "stride": 2}}),
    Case("ConvTranspose", [(3, 4, 4, 5)], {"convtranspose_conf": {"num_filters": 6, "groups": 2, "pad": 1}}),
    *(Case("Upsample", [(3, 2, 4, 5)], {"upsample_conf": {"mode": mode}}) for mode in ("NEAREST", "BILINEAR")),
    *(
        Case("AdaptivePooling", [(3, 2, 4, 6)], {"adaptivepooling_conf": {"height": h, "width": 3, "pool": pool}})
        for h, pool in ((2, "AVG"), (3, "AVG"), (2, "MAX"), (3, "MAX"))
    ),
    Case("Pooling", [(3, 2, 7, 6)], {"pooling_conf": {"kernel": 3, "stride": 2, "pad": 1}}),
    Case("Pooling", [(3, 2, 7, 6)], {"pooling_conf": {"kernel": 3, "stride": 2, "ties": "all"}}),
    Case(
        "Pooling", [(3, 2, 7, 6)], {"pooling_conf": {"kernel": 2, "pool": "AVG", "count_include_pad": False, "pad": 1}}
    ),
    Case("LRN", [(3, 6, 2, 3)], {"lrn_conf": {"local_size": 3, "alpha": 0.5}}),
    Case("BatchNorm", [(3, 4, 2, 3)]),
    Case("BatchNorm", [(5, 4)]),
    Case("ArgSort", [(4, 6)], {"argsort_conf": {"topk": 3}}, fixed=1),
    Case("Accuracy", [(4, 6), (4,)], {"argsort_conf": {"topk": 2}}, labels=[0, 5, 1, 2], fixed=2),
    Case("Split", [(3, 2, 4, 5)], {"split_conf": {"num_splits": 3}}, labels=[0, 1, 2]),
    Case("Slice", [(4, 6)], {"slice_conf": {"slice_dim": 0, "num_slices": 2}}, labels=[0, 1, 2, 3]),
    Case("Slice", [(4, 5, 2, 3)], {"slice_conf": {"slice_dim": 1, "num_slices": 2}}, labels=[0, 1, 2, 3]),
    Case("Slice", [(4, 6)], {"slice_conf": {"slice_dim": 0, "num_slices": 2}}, n_steps=2, labels=[0, 1, 2, 3]),
    Case("Concate", [(2, 3, 2, 2), (4, 3, 2, 2)], {"concate_conf": {"concate_dim": 0}}),
    Case("Concate", [(4, 3), (4, 2)], {"concate_conf": {"concate_dim": 1}}, n_steps=2),
    Case("Dummy", [], {"dummy_conf": {"input": True, "shape": [4, 6]}}),
    Case("GRU", [(6, 4)], {"gru_conf": {"dim_hidden": 5}}, n_steps=3),
    Case("GRU", [(6, 4), (2, 5)], {"gru_conf": {"dim_hidden": 5}}, n_steps=3),
    Case("LSTM", [(6, 4), (2, 5)], {"lstm_conf": {"dim_hidden": 5}}, n_steps=3),
    *(
        Case(kind, [(6, 4), (2, 5), (6, 1)], {f"{kind.lower()}_conf": {"dim_hidden": 5}}, n_steps=3, masked=True)
        for kind in ("GRU", "LSTM", "RNN")
    ),
    *(
        Case(kind, shapes, {f"{kind.lower()}_conf": {"dim_hidden": 5, "reverse": True}}, 3, masked=len(shapes) > 1)
        for kind in ("GRU", "LSTM", "RNN")
        for shapes in ([(6, 4)], [(6, 4), (6, 1)], [(6, 4), (2, 5), (6, 1)])
    ),
    Case("RNN", [(6, 4)], {"rnn_conf": {"dim_hidden": 5, "activation": "SIGMOID"}}, n_steps=3),
    Case("BatchNorm", [(4, 2, 3)]),
    Case("Embedding", [(4, 3)], {"embedding_conf": {"vocab_size": 5, "feature_dim": 3}}, fixed=1, integers=5),
    Case("Embedding", [(4, 1)], {"embedding_conf": {"vocab_size": 5, "feature_dim": 3}}, fixed=1, integers=5),
    Case("OneHot", [(4, 1)], {"onehot_conf": {"vocab_size": 5}}, fixed=1, integers=5),
]
