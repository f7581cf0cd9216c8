"""Param and Cancellation: sharing, and threads that wait for versions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from singa_dask.conf import ParamConf
from singa_dask.errors import Aborted
from singa_dask.layers import Param


def make(name: str = "w", shape: tuple[int, ...] = (2, 3)) -> Param:
    return Param(name, shape, ParamConf())


def test_a_new_param_has_no_values() -> None:
    param = make()
    assert (param.has_data, param.has_grad, param.version, param.size) == (False, False, -1, 6)
    with pytest.raises(RuntimeError, match="has no values"):
        _ = param.data
    with pytest.raises(RuntimeError, match="has no gradient"):
        _ = param.grad
    assert param.owner is param
    assert repr(param) == "Param('w', (2, 3), version=-1)"


def test_sharers_of_sharers_have_one_owner() -> None:
    a, b, c = make("a"), make("b"), make("c")
    b.share(a)
    c.share(b)
    assert c.owner is a
    c.data = np.ones((2, 3))
    assert a.data is b.data is c.data


def test_waiting_ends_when_the_version_comes() -> None:
    owner, sharer = make("a"), make("b")
    sharer.share(owner)
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(param.wait, 3) for param in (owner, sharer)]
        for version in (1, 3, 2):
            sharer.publish(version)
        for wait in waits:
            wait.result(timeout=60)
    assert owner.version == 3
    owner.wait(2)


def test_a_closed_gate_ends_every_wait() -> None:
    param = make()
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(param.wait, 0)
        param.cancellation.cancel("server-0-0 failed")
        with pytest.raises(Aborted, match="server-0-0 failed"):
            wait.result(timeout=60)
    with pytest.raises(Aborted):
        param.wait(5)
