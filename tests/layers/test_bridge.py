"""BridgeSrc and BridgeDst: what is sent arrives, and its gradient comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.layers import LAYERS, Context, Feature, LayerSite
from singa_dask.layers.bridge import BridgeDst, BridgeSrc
from singa_dask.net import memory, wiring
from singa_dask.ops import NumpyOps
from singa_dask.testing.case import CPU, backward, forward, source
from tests.net.group import Post


def pair(
    given: Feature, phase: Phase = Phase.TRAIN, ops: tuple[NumpyOps, NumpyOps] = (CPU, CPU)
) -> tuple[BridgeSrc, BridgeDst, Post]:
    """Return both ends of a bridge from worker 0 to worker 2."""
    post, ends, sources = Post(), [], [given]
    for kind, worker, peer, kernels in (("BridgeSrc", 0, 2, ops[0]), ("BridgeDst", 2, 0, ops[1])):
        context = Context(phase, dtype=np.dtype(np.float64), worker=worker, n_workers=3, exchange=post.of(worker))
        conf = LayerConf.model_validate({"name": f"{kind}(a@0->2)", "type": kind, "srclayers": ["a"]})
        site = LayerSite(conf.name, peer=peer)
        end: Any = LAYERS.find(kind)(conf, context, site)
        wiring.wire(end, sources, kernels)
        memory.allocate(end)
        end.features[0].consumed_as = {"data"}
        sources = end.features
        ends.append(end)
    return ends[0], ends[1], post


@pytest.mark.parametrize("shape", [(10, 20), (2, 3, 4, 5), (2, 4, 5)])
def test_data_goes_there_and_a_gradient_comes_back(shape: Sequence[int]) -> None:
    x = source(shape, labels=range(shape[0]))
    x.records = replace(x.records, partner_labels=x.records.labels[::-1], mix_weights=np.linspace(0.5, 1, shape[0]))
    start, end, post = pair(x)
    feature = end.features[0]
    for layer in (start, end):
        layer.features[0].consumed_as |= {"data", "labels"}
    assert feature.shape == x.shape
    assert not end.arrived(Phase.TRAIN | Phase.FORWARD)
    forward(start)
    assert end.arrived(Phase.TRAIN | Phase.FORWARD)
    forward(end)
    np.testing.assert_array_equal(feature.data, x.data)
    np.testing.assert_array_equal(feature.records.labels, x.records.labels)
    np.testing.assert_array_equal(feature.records.partner_labels, x.records.labels[::-1])
    np.testing.assert_array_equal(feature.records.mix_weights, x.records.mix_weights)
    feature.grad[...] = np.random.default_rng(1).normal(size=shape)
    assert not start.arrived(Phase.TRAIN | Phase.BACKWARD)
    backward(end)
    assert start.arrived(Phase.TRAIN | Phase.BACKWARD)
    backward(start)
    np.testing.assert_array_equal(x.grad, feature.grad)
    assert post.n_values == 2 * np.prod(shape)


def test_what_no_gradient_answers_is_a_copy() -> None:
    x = source((4, 3), grad=False, labels=[0, 1, 2, 3])
    start, end, _ = pair(x)
    forward(start)
    sent = x.data.copy()
    x.data[...] = 0
    forward(end)
    np.testing.assert_array_equal(end.features[0].data, sent)


def test_labels_go_alone_where_nobody_reads_data() -> None:
    x = source((4, 3), grad=False, labels=[0, 1, 2, 3])
    start, end, post = pair(x)
    for layer in (start, end):
        layer.features[0].consumed_as = {"labels"}
    forward(start)
    forward(end)
    assert not end.features[0].has_data
    np.testing.assert_array_equal(end.features[0].records.labels, [0, 1, 2, 3])
    assert set(post.sent.values()) == {4}


def test_batches_of_two_phases_do_not_mix() -> None:
    keys = set()
    for phase in (Phase.TRAIN, Phase.TEST):
        start, _, post = pair(source((4, 3)), phase)
        forward(start)
        keys.update(post.arrived)
    assert len(keys) == 2
