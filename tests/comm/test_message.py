"""Messages: what travels, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from singa_dask.comm import message
from singa_dask.comm.message import Address, Message, pack
from singa_dask.comm.stub import Stub
from singa_dask.errors import CommError
from singa_dask.runtime.units.barrier_coordinator import BarrierCoordinator
from singa_dask.runtime.units.server import Server
from singa_dask.runtime.units.worker import Worker


def test_a_message_comes_out_as_it_went_in() -> None:
    arrays = (np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros(0), np.array(7, np.int64))
    sent = Message("update", Address.worker(1, 2), Address.server(0, 1), 4, 5, 6, 7, {"n": 2}, arrays)
    got = Message.from_header(sent.header())
    assert got.header() == sent.header()
    assert got.n_bytes == sent.n_bytes == 6 * 4 + 8


def test_memory_that_fits_is_used() -> None:
    sent = Message("update", Address.worker(0, 0), Address.server(0, 0), arrays=(np.zeros(3, np.float32),))
    asked = []

    def place(memory: np.ndarray | None) -> np.ndarray:
        got = Message.from_header(sent.header(), lambda message: (asked.append(message), memory)[1])
        return got.arrays[0]

    fits = np.ones(3, np.float32)
    assert place(fits) is fits
    assert asked[0].kind == "update" and asked[0].arrays == ()
    for other in (None, np.ones(4, np.float32), np.ones(3)):
        assert place(other) is not other
        assert (place(other).shape, place(other).dtype) == ((3,), np.float32)


def test_addresses_read_as_people_write_them() -> None:
    assert [str(unit) for unit in (Address.worker(0, 1), Address.server(2, 0), Address.stub(3))] == [
        "worker-0-1",
        "server-2-0",
        "stub-3",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"arrays": [["O", [3]]]},
        {"arrays": [["<f4", [-1]]]},
        {"arrays": [["<f4", [1 << 60]]]},
        {"arrays": 3},
        {"parts": 3},
        {"parts": [{"kind": "put"}]},
        {"src": ["worker"]},
        {"colour": "red"},
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object]) -> None:
    sent = Message("put", Address.worker(0, 0), Address.server(0, 0), arrays=(np.zeros(3, np.float32),))
    with pytest.raises(CommError, match="not of this protocol"):
        Message.from_header({**sent.header(), **change})


def test_messages_to_one_unit_are_packed_in_order() -> None:
    def to(server: int, step: int) -> Message:
        return Message("update", Address.stub(0), Address.server(0, server), step=step)

    first, other = pack([to(0, 1), to(1, 2), to(0, 3)])
    assert (first.kind, first.dst, [part.step for part in first.parts]) == ("pack", Address.server(0, 0), [1, 3])
    assert other == to(1, 2)
    assert pack([]) == []


def test_a_pack_comes_out_as_it_went_in() -> None:
    arrays = [np.arange(n, dtype=np.float32) for n in (3, 0, 5)]
    parts = [
        Message("update", Address.stub(0), Address.server(0, 0), slice=i, arrays=(a,)) for i, a in enumerate(arrays)
    ]
    (sent,) = pack(parts)
    asked: list[int] = []
    got = Message.from_header(sent.header(), lambda message: asked.append(message.slice))  # type: ignore[func-returns-value]
    assert got.header() == sent.header()
    assert asked == [0, 1, 2]
    assert got.n_bytes == sent.n_bytes == 32
    assert [array.size for array in got.all_arrays] == [3, 0, 5]


def test_packs_without_end_are_refused() -> None:
    header = Message("pack", Address.stub(0), Address.server(0, 0)).header()
    for _ in range(2000):
        header = {**header, "parts": [header]}
    with pytest.raises(CommError, match="not of this protocol"):
        Message.from_header(header)


def test_the_table_lists_every_kind() -> None:
    """Kinds that a unit handles, or that are answers at a barrier, are in the docstring of the module."""
    handled = [name.removeprefix("_on_") for unit in (Stub, Server) for name in vars(unit) if name.startswith("_on_")]
    kinds = {name.replace("_", "-").removeprefix("r-") for name in handled} | Worker.ANSWERED_AT_ONCE
    kinds |= {*BarrierCoordinator.KINDS, *BarrierCoordinator.KINDS.values()}
    table = re.findall(r"^([a-z-]+) ", str(message.__doc__), re.MULTILINE) + re.findall(
        r"``([a-z-]+)``", str(message.__doc__)
    )
    assert kinds - {*table} == set()
