"""PaddingMask: which time steps are no padding, by their numbers or by lengths."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError, DataError
from singa_dask.layers import Feature, Layer
from singa_dask.testing.case import CPU, Case, forward, source, wire

CASES = [
    Case("PaddingMask", [(4, 3)], {"paddingmask_conf": {"padding": 0}}, 3, fixed=1, integers=3, source_steps=[1]),
    Case("PaddingMask", [(4, 1)], {"paddingmask_conf": {"lengths": True}}, 3, fixed=1, integers=4, source_steps=[1]),
]


def made(numbers: Any, n_steps: int, **block: Any) -> Layer:
    x = source(np.shape(numbers), grad=False)
    CPU.copy(np.array(numbers, float), out=x.data)
    return wire("PaddingMask", [x], n_steps=n_steps, paddingmask_conf=block)


def mask(layer: Layer) -> list[list[bool]]:
    forward(layer)
    found: Feature = layer.features[0]
    assert found.dtype == bool and not found.requires_grad
    return found.data.reshape(layer.site.n_steps, -1).tolist()


def test_numbers() -> None:
    assert mask(made([[4, 0, -1], [2, -1, -1]], 3)) == [[True, True], [True, False], [False, False]]
    assert mask(made([[4, 0, -1], [2, 0, 0]], 3, padding=0)) == [[True, True], [False, False], [True, False]]


def test_lengths() -> None:
    wanted = [[True, False, True], [True, False, False], [True, False, False]]
    assert mask(made([[3], [0], [1]], 3, lengths=True)) == wanted


@pytest.mark.parametrize("length", [-1, 4])
def test_lengths_out_of_range(length: int) -> None:
    words = f"layer layer: length {length} from 'src0' is out of range. Expected 0 to 3, the time steps."
    with pytest.raises(DataError, match=re.escape(words)):
        forward(made([[3], [length]], 3, lengths=True))


def test_lengths_are_one_a_row() -> None:
    with pytest.raises(
        ConfigError, match=r"srclayers\[0\]: expected one length of a sequence in each row, got shape \(2, 3\)"
    ):
        made([[4, 0, -1], [2, -1, -1]], 3, lengths=True)


@pytest.mark.parametrize(
    ("kind", "shape", "words"),
    [
        (
            "MultiHeadAttention",
            (4, 1),
            "srclayers[1]: the mask has shape (4, 1), expected (6, 1): a value for each row",
        ),
        (
            "MultiHeadAttention",
            (6, 2),
            "srclayers[1]: the mask has shape (6, 2), expected (6, 1): a value for each row",
        ),
    ],
)
def test_a_mask_of_other_rows(kind: str, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        wire(kind, [source((6, 4)), Feature(shape, bool, False)], n_steps=3, multiheadattention_conf={"num_heads": 2})


@pytest.mark.parametrize("kind", ["Multiply", "Add", "SoftmaxLoss"])
def test_layers_that_know_no_padding_take_no_mask(kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"srclayers\[1\]: {kind} takes no PaddingMask\. Leave it out"):
        wire(kind, [source((6, 1)), Feature((6, 1), bool, False)])


def test_a_mask_is_not_joined_with_features() -> None:
    with pytest.raises(ConfigError, match="srclayers: the sources have values of float64, bool"):
        wire("Concate", [source((6, 4)), Feature((6, 1), bool, False)], concate_conf={"concate_dim": 1})
