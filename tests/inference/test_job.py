"""The job of an inference: losses and inputs of a user's are known by what their traits say."""

from __future__ import annotations

from typing import Any

import pytest

from singa_dask.conf import Phase
from singa_dask.inference.inference_job import inference_job, with_data
from singa_dask.inference.predicted_layers import classifier, output_layer
from singa_dask.inputs.targets import TargetInput
from singa_dask.layers import LAYERS
from singa_dask.layers.loss import EuclideanLoss
from singa_dask.layers.softmax_loss import SoftmaxLoss
from singa_dask.training.pass_metrics import PassMetrics
from tests.net.feed import Feed
from tests.net.jobs import TEST, build, dense, job, layer, mlp


class OwnLoss(SoftmaxLoss):
    pass


class OwnDistance(EuclideanLoss):
    pass


class OwnTargets(TargetInput):
    pass


@pytest.fixture(autouse=True)
def own_types(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Feed, OwnLoss, OwnDistance, OwnTargets):
        monkeypatch.setitem(LAYERS._classes, kind.__name__, kind)


def test_a_loss_of_ones_own_gives_classes() -> None:
    layers = [*mlp()[:-1], layer("loss", "OwnLoss", "fc2", "data")]
    conf = job(layers)
    assert classifier(conf, Phase.TEST) == "loss"
    opened = inference_job(conf, Phase.TEST, in_order=True, exposed=True).job.neuralnet.layer[-1]
    assert (opened.type, opened.srclayers) == ("Softmax", ["fc2"])
    assert PassMetrics(build(layers, phase=TEST), ["f1_macro"])


def test_targets_of_ones_own_are_left_out_with_other_records() -> None:
    store: dict[str, Any] = {"path": "a.csv", "batchsize": 2, "features": ["a"], "target": ["y"]}
    layers = [
        layer("data", "RecordInput", store_conf=store),
        layer("y", "OwnTargets", store_conf=store),
        dense("fc", "data", 1),
        layer("loss", "OwnDistance", "fc", "y"),
    ]
    conf = job(layers)
    assert output_layer(conf, Phase.TEST) == "fc"
    kept = with_data(conf, ["data"], "b.csv", "csv").neuralnet.layer
    assert [each.name for each in kept] == ["data", "fc"]
