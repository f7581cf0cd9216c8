"""Watched nets: the same bits as others, and an error where a layer breaks its contract."""

from __future__ import annotations

import pytest

from singa_dask.layers import LAYERS
from singa_dask.testing.case import Case
from tests.layers.cases import shown
from tests.net.group import Group
from tests.net.jobs import job
from tests.net.recurrent import Columns
from tests.net.test_partition_cases import learning_cases, net
from tests.net.test_random_graphs import same

RECURRENT = [
    Case("GRU", [(6, 4)], {"gru_conf": {"dim_hidden": 4}}, n_steps=3),
    Case("LSTM", [(6, 4)], {"lstm_conf": {"dim_hidden": 4}}, n_steps=3),
]


@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("case", [*learning_cases(), *RECURRENT], ids=shown)
def test_watching_changes_no_bit(monkeypatch: pytest.MonkeyPatch, case: Case, n_workers: int) -> None:
    monkeypatch.setitem(LAYERS._classes, "Columns", Columns)
    found = []
    for watched in (False, True):
        group = Group(job([], neuralnet={"layer": net(case, partition_dim=1), "unroll_len": case.n_steps}), n_workers)
        for each in group.nets:
            each.is_watched = watched
        group.train(3)
        found.append(group)
    same(*found)
