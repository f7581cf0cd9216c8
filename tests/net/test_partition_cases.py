"""The cases of all layers in partitioned nets: a group computes what one worker does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.layers import LAYERS
from singa_dask.testing.case import Case
from tests.layers.cases import all_cases, shown
from tests.net.group import Group
from tests.net.jobs import UNIFORM, dense, job, layer
from tests.net.recurrent import Columns
from tests.net.test_random_graphs import same

N_ROWS = 12


def source_layers(case: Case, k: int) -> list[dict[str, Any]]:
    """Return layers that end in one whose output has the shape of a source of a case, a batch of `N_ROWS`."""
    _, *rest = case.shapes[k]
    data, name, n_steps = f"data{k}", f"source{k}", case.source_steps[k] if case.source_steps else case.n_steps
    if n_steps > 1:
        [width] = rest
        feed = layer(data, "Feed", unroll_len=1, user_conf={"shape": [N_ROWS, n_steps * width], "classes": 3})
        if case.masked and k == len(case.shapes) - 1:
            return [feed, layer(name, "PaddingMask", data, unroll_len=n_steps, paddingmask_conf={"padding": 0})]
        columns = layer(f"in{k}", "Columns", data, user_conf={"width": width}, unroll_len=n_steps)
        return [feed, columns, dense(name, f"in{k}", width, unroll_len=n_steps)]
    feed = layer(data, "Feed", user_conf={"shape": [N_ROWS, *rest], "classes": 3}, unroll_len=1)
    made = dense(name, data, rest[0], unroll_len=1)
    if len(rest) == 2:
        wide = dense(f"flat{k}", data, rest[0] * rest[1], unroll_len=1)
        return [feed, wide, layer(name, "Reshape", wide["name"], reshape_conf={"shape": rest}, unroll_len=1)]
    if len(rest) == 3:
        block = {"num_filters": rest[0], "kernel": 1}
        made |= {"type": "Convolution", "innerproduct_conf": None, "convolution_conf": block}
    return [feed, made]


def net(case: Case, **more: Any) -> list[dict[str, Any]]:
    """Return a net of a case between layers with params, and a loss."""
    params = [{"init": UNIFORM} for _ in case.wired().params]
    sources = [f"source{k}" for k in range(len(case.shapes))]
    tested = layer("tested", case.kind, *sources, param=params, **(case.conf or {}), **more)
    labelled = "in0" if case.n_steps > 1 else "data0"
    before = [each for k in range(len(sources)) for each in source_layers(case, k)]
    if case.source_steps and case.source_steps[0] != case.n_steps > 1:
        # the labels are those of whole sequences
        ends = [layer("pooled", "TimePooling", "tested"), dense("out", "pooled", 3)]
        ends = [{**each, "unroll_len": 1} for each in [*ends, layer("loss", "SoftmaxLoss", "out", "data0")]]
        return [*before, tested, *ends]
    return [*before, tested, dense("out", "tested", 3), layer("loss", "SoftmaxLoss", "out", labelled)]


def learning_cases() -> list[Case]:
    """Return the cases that can stand between layers with params."""
    return [case for case in all_cases() if not case.fixed and not case.cls.traits.is_loss]


@pytest.mark.parametrize("partition_dim", [0, 1, -1])
@pytest.mark.parametrize("case", learning_cases(), ids=shown)
def test_a_group_computes_what_one_worker_does(monkeypatch: pytest.MonkeyPatch, case: Case, partition_dim: int) -> None:
    monkeypatch.setitem(LAYERS._classes, "Columns", Columns)

    def trained(n_workers: int, **more: Any) -> Group:
        group = Group(job([], neuralnet={"layer": net(case, **more), "unroll_len": case.n_steps}), n_workers)
        assert np.isfinite(group.train(2)).all()
        return group

    same(trained(2, partition_dim=partition_dim), trained(1))
