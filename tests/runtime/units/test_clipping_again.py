"""Two servers that clip by the norm of all gradients, while the worker group starts again in the middle of a step."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.comm.message import Address, Message
from singa_dask.comm.slices import slice_table
from singa_dask.conf import ClusterConf, UpdaterConf
from singa_dask.ops import NumpyOps
from singa_dask.runtime.units.server import Server
from tests.selection import few_examples

CLIPPED = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 1.0}, "clip_norm": 1.0}
BEFORE, AFTER = (3.0, 4.0), (60.0, 25.0)
"""The gradient at each server: of the workers that are lost, and of those that compute the step again."""
UNITS = [list(Address.worker(0, 0))]


class Pair:
    """Two servers of a group, with one value each, and the messages that are on the way to them."""

    def __init__(self) -> None:
        cluster = ClusterConf.model_validate({"nworker_groups": 2, "nservers_per_group": 2})
        updater, self.values = UpdaterConf.model_validate(CLIPPED), [np.zeros(1, np.float32) for _ in range(2)]
        pieces = slice_table([1, 1], 1, 2)
        assert [piece.server for piece in pieces] == [0, 1]
        self.servers = [
            Server(
                Address.server(0, i), [pieces[i]], self.values.__getitem__, [(1.0, 1.0)] * 2, [1, 1], updater, cluster,
                NumpyOps(), {0: 1, 1: 1},
            )
            for i in range(2)
        ]  # fmt: skip
        self.norms: list[list[Message]] = [[], []]
        self.answered = [0, 0]
        for i in range(2):
            self.send(i, "put", 0.0, version=0)

    def send(self, i: int, kind: str, value: float, **more: Any) -> None:
        info = {"group": 0, "n": 1, "total": 1, "node": 0, "in_place": False}
        arrays = (np.full(1, value, np.float32),)
        to = self.servers[i].address
        self.handle(i, Message(kind, Address.stub(1), to, param=i, slice=i, info=info, arrays=arrays, **more))

    def handle(self, i: int, message: Message) -> None:
        for answer in self.servers[i].handle(message):
            if answer.kind == "norm":
                self.norms[answer.dst.id].append(answer)
            else:
                self.answered[i] += answer.kind == "r-update"

    def replace(self, i: int) -> None:
        self.answered[i] = 0
        self.handle(i, Message("replaced", Address.stub(0), self.servers[i].address, info={"units": UNITS}))


@few_examples(100)
@given(st.data())
def test_both_servers_scale_by_one_norm_whenever_messages_arrive(data: st.DataObject) -> None:
    pair, is_replaced, is_old, is_new = Pair(), [False] * 2, [False] * 2, [False] * 2
    while not all(is_new) or any(pair.norms):
        can = [("norm", i) for i in range(2) if pair.norms[i]]
        can += [("replace", i) for i in range(2) if not is_replaced[i]]
        can += [("old", i) for i in range(2) if not is_replaced[i] and not is_old[i]]
        can += [("new", i) for i in range(2) if all(is_replaced) and not is_new[i]]
        what, i = data.draw(st.sampled_from(can))
        if what == "norm":
            pair.handle(i, pair.norms[i].pop(0))
        elif what == "replace":
            is_replaced[i] = True
            pair.replace(i)
        elif what == "old":
            is_old[i] = True
            pair.send(i, "update", BEFORE[i], step=0)
        else:
            is_new[i] = True
            pair.send(i, "update", AFTER[i], step=0)
    changes = np.concatenate(pair.values)
    wanted = [np.array(each) / np.hypot(*each) for each in product(*zip(BEFORE, AFTER, strict=True))]
    assert any(changes == pytest.approx(-each, rel=1e-4) for each in wanted), changes
    assert [server.applied(0) for server in pair.servers] == [0, 0]
    assert pair.answered == [1, 1]  # the workers that started again go on
