"""Messages: what travels, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from singa_dask.comm import Address, Message
from singa_dask.errors import CommError


def frames(message: Message) -> list[bytes]:
    return [array.tobytes() for array in message.arrays]


def test_a_message_comes_out_as_it_went_in() -> None:
    arrays = (np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros(0), np.array(7, np.int64))
    sent = Message("update", Address.worker(1, 2), Address.server(0, 1), "job", 3, 4, 5, 6, 7, {"n": 2}, arrays)
    got = Message.from_frames(sent.header(), frames(sent))
    assert got.header() == sent.header()
    assert sent.n_bytes == 6 * 4 + 8
    for a, b in zip(got.arrays, arrays, strict=True):
        np.testing.assert_array_equal(a, b)


def test_addresses_read_as_people_write_them() -> None:
    assert [str(unit) for unit in (Address.worker(0, 1), Address.server(2, 0), Address.stub(3))] == [
        "worker-0-1",
        "server-2-0",
        "stub-3",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"arrays": [["<f4", [7]]]},
        {"arrays": [["O", [3]]]},
        {"arrays": []},
        {"src": ["worker"]},
        {"colour": "red"},
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, object]) -> None:
    sent = Message("put", Address.worker(0, 0), Address.server(0, 0), arrays=(np.zeros(3, np.float32),))
    with pytest.raises(CommError, match="not of this protocol"):
        Message.from_frames({**sent.header(), **change}, frames(sent))
