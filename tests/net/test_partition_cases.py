"""The cases of all layers in nets: a group computes what one worker does, and a watched net the same bits as others."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from singa_dask.layers import LAYERS
from singa_dask.testing.case import Case
from tests.layers.cases import all_cases, shown
from tests.net.group import Group, same
from tests.net.jobs import UNIFORM, dense, job, layer
from tests.net.recurrent import Columns
from tests.selection import mostly_long, mostly_soak

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
    return [case for case in all_cases() if not case.fixed and case.cls.traits.role != "loss"]


RECURRENT = [
    Case("GRU", [(6, 4)], {"gru_conf": {"dim_hidden": 4}}, n_steps=3),
    Case("LSTM", [(6, 4)], {"lstm_conf": {"dim_hidden": 4}}, n_steps=3),
]
CASES = {f"{k} {shown(case)}": case for k, case in enumerate([*learning_cases(), *RECURRENT])}


@pytest.fixture(autouse=True)
def known_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYERS._classes, "Columns", Columns)


@functools.cache
def trained(name: str, n_workers: int = 1, partition_dim: int | None = None, watched: bool = False) -> Group:
    """Return a group that has trained a case, computed once for all tests."""
    case = CASES[name]
    layers = net(case, **({} if partition_dim is None else {"partition_dim": partition_dim}))
    group = Group(job([], neuralnet={"layer": layers, "unroll_len": case.n_steps}), n_workers)
    for each in group.nets:
        each.is_watched = watched
    assert np.isfinite(group.train(2)).all()
    return group


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("partition_dim", mostly_long([1, 0, -1], 3))
def test_a_group_computes_what_one_worker_does(name: str, partition_dim: int) -> None:
    same(trained(name, 2, partition_dim), trained(name))


@pytest.mark.parametrize("name", mostly_long(CASES, 4))
@pytest.mark.parametrize("n_workers", mostly_soak([2, 1], 2))
def test_watching_changes_no_bit(name: str, n_workers: int) -> None:
    partition_dim = 1 if n_workers > 1 else None
    found = [trained(name, n_workers, partition_dim, watched) for watched in (True, False)]
    same(*found)
    watched, wanted = (group.values() for group in found)
    for key, values in wanted.items():
        np.testing.assert_array_equal(watched[key], values, err_msg=key)
