"""Files with wrong bytes in their headers: read, or refused by name; no other error gets out."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from singa_dask.data.stores import STORES, open_store
from singa_dask.errors import DataError
from tests.contracts.records import pixels
from tests.selection import mostly_long

KINDS = ["plain.arrow", "lz4.arrow", "stored.npz", "compressed.npz", "npy.tar"]


def whole(path: Path) -> bytes:
    """Write a store whose name says what it is."""
    records = pixels(60)
    if path.suffix == ".arrow":
        STORES.find("arrow").write(str(path), records, compression="lz4" if path.stem == "lz4" else None)
    elif path.suffix == ".npz":
        save = np.savez if path.stem == "stored" else np.savez_compressed
        save(path, x=records["pixel"], y=records["label"])
    else:
        with tarfile.open(path, "w") as archive:
            for i, pixel in enumerate(records["pixel"][:3]):
                data = io.BytesIO()
                np.save(data, pixel)
                member = tarfile.TarInfo(f"{i}.npy")
                member.size = len(data.getvalue())
                archive.addfile(member, io.BytesIO(data.getvalue()))
    return path.read_bytes()


@pytest.mark.parametrize("kind", mostly_long(KINDS, len(KINDS)))
def test_wrong_bytes_are_no_bug(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    data = whole(path)
    # headers at the beginning, footers at the end
    places = [*range(0, min(700, len(data)), 7), *range(max(0, len(data) - 900), len(data), 7)]
    refused = 0
    for at in places:
        for wrong in (b"\xff" * 4, bytes([data[at] ^ 1])):
            path.write_bytes(data[:at] + wrong + data[at + len(wrong) :])
            try:
                with open_store(str(path)) as store:
                    for block in store.blocks:
                        arrays = store.read_block(block.id)
                        assert {len(array) for array in arrays.values()} == {block.n}
            except DataError as error:
                refused += 1
                assert str(error).count(kind) == 1
    assert refused > len(places) / 4


def test_an_npz_that_hides_its_labels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "compressed.npz"
    data = bytearray(whole(path))
    entry = data.index(b"PK\1\2")
    # a longer comment of the first member hides the second one
    data[entry + 33] = 0x20
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"compressed\.npz: .*it has 1 members, not 2"):
        open_store(str(path))
