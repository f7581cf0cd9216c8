"""Whole nets of the configs against PyTorch: the loss and the gradients of all params in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.ops import get_ops
from tests.oracles.compare import assert_close, numbers

torch = pytest.importorskip("torch")
pytest.importorskip("threadpoolctl")
modern: Any = pytest.importorskip("benchmarks.modern")
models: Any = pytest.importorskip("benchmarks.modern_torch")


@pytest.mark.parametrize("name", models.MODELS)
def test_a_net(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = modern.batch_of(name, 6)
    loop = modern.loop_of(name, batch, get_ops("numpy"), "float64")
    # biases that are not 0; what does not learn is the same in both
    random = np.random.default_rng(3)
    for param in loop.net.owners:
        if param.conf.lr_scale:
            param.data += random.uniform(0, 0.1, param.shape)
    model = models.MODELS[name]().double()
    models.copy_values(model, [param.data for param in loop.net.owners])
    records = [torch.from_numpy(values) for values in batch.values()]
    loss = model.loss(*(each.double() if each.is_floating_point() else each for each in records))
    # ours is the sum over the time steps of the loss
    (loss * next(layer for layer in loop.net.layers if layer.traits.role == "loss").site.n_steps).backward()

    # without a step the gradients of shared params stay added up
    monkeypatch.setattr(loop.updater, "update", lambda *_, **__: None)
    assert_close(loop.train_one_batch(), loss.item(), "loss")
    gradients = models.MODELS[name]().double()
    models.copy_values(gradients, [param.grad for param in loop.net.owners])
    compared = 0
    for (key, ours), theirs in zip(gradients.named_parameters(), model.parameters(), strict=True):
        # PyTorch's second bias of a GRU has no counterpart
        if theirs.requires_grad:
            assert_close(numbers(ours), numbers(theirs.grad), key)
            compared += np.ptp(numbers(theirs.grad)) > 0
    assert compared
