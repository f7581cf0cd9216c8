"""How much memory a net says that it takes: what it then does take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from singa_dask.inputs import InputContext
from singa_dask.net import make_net
from singa_dask.ops import NumpyOps
from tests.net.jobs import TEST, job, mlp
from tests.net.test_images import images
from tests.training.test_cd import rbm


class Counting(NumpyOps):
    """Kernels that count the bytes that they give."""

    def __init__(self) -> None:
        super().__init__()
        self.n_bytes = 0

    def count(self, made: Any) -> Any:
        self.n_bytes += made.nbytes
        return made

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        return self.count(super().empty(shape, dtype))

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        return self.count(super().zeros(shape, dtype))

    def features(self, shape: Sequence[int], dtype: Any) -> Any:
        return self.count(super().features(shape, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layers", [mlp(), images(4, 8), [mlp()[0], *rbm()]], ids=["mlp", "images", "rbm"])
def test_a_net_says_what_it_takes(layers: list[dict[str, Any]], dtype: Any) -> None:
    ops = Counting()
    net = make_net(job(layers), InputContext(dtype=np.dtype(dtype)), ops)
    wanted = net.memory_bytes()
    assert ops.n_bytes == 0
    assert all(not feature.has_data for layer in net.layers for feature in layer.features)
    net.allocate()
    net.allocate_params()
    assert ops.n_bytes == wanted == net.memory_bytes()


def test_a_net_with_the_params_of_another_takes_none() -> None:
    train = make_net(job(mlp()), InputContext(), NumpyOps())
    alone = make_net(job(mlp()), InputContext(TEST), NumpyOps())
    sharing = make_net(job(mlp()), InputContext(TEST), NumpyOps(), train)
    n_values = sum(param.size for param in train.owners)
    assert alone.memory_bytes() - sharing.memory_bytes() == 4 * n_values


def test_what_is_left_out_takes_nothing() -> None:
    net = make_net(job(mlp()), InputContext(TEST), NumpyOps())
    whole = net.memory_bytes()
    net.leave_out([net.name2layer("loss")])
    assert whole - net.memory_bytes() == net.name2layer("loss").features[0].size * 8 * 4
