"""Labels that are no integers of 32 bits: refused by every store, converter and layer, with the place and the value."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.codecs.record import encode_record
from singa_dask.data.stores import STORES, open_store
from singa_dask.errors import DataError
from tests.contracts import foreign
from tests.contracts.records import read_all, write_pairs, written
from tests.converting import convert
from tests.data.stores.test_lmdb import datum, write_values

N, WRONG = 5, 3
VALUES = np.arange(4 * N, dtype=np.uint8).reshape(N, 4)


def labels(value: float) -> list[float]:
    return [value if i == WRONG else i for i in range(N)]


def as_table(label: float) -> pa.Table:
    kind = pa.uint64() if label > 2**62 else pa.int64()
    columns = [pa.array([row.tobytes() for row in VALUES], pa.binary(4)), pa.array(labels(label), kind)]
    return pa.table(columns, names=["pixel", "label"])


def as_arrow(folder: Path, label: float) -> str:
    table = as_table(label)
    with pa.ipc.new_file(str(folder / "x.arrow"), table.schema) as writer:
        writer.write_table(table)
    return str(folder / "x.arrow")


def as_parquet(folder: Path, label: float) -> str:
    pq.write_table(as_table(label), folder / "x.parquet")
    return str(folder / "x.parquet")


def as_npz(folder: Path, label: float) -> str:
    np.savez(folder / "x.npz", x=VALUES, y=np.array(labels(label)))
    return str(folder / "x.npz")


def as_npz_compressed(folder: Path, label: float) -> str:
    np.savez_compressed(folder / "x.npz", x=VALUES, y=np.array(labels(label)))
    return str(folder / "x.npz")


def as_kvfile(folder: Path, label: float) -> str:
    records = [
        encode_record((4,), int(each), pixel=row.tobytes()) for each, row in zip(labels(label), VALUES, strict=True)
    ]
    write_pairs(str(folder / "x.bin"), ((str(i), record) for i, record in enumerate(records)))
    return str(folder / "x.bin")


def as_lmdb(folder: Path, label: float) -> str:
    values = [datum(VALUES[i].reshape(1, 2, 2), int(each)) for i, each in enumerate(labels(label))]
    return write_values(folder / "x.lmdb", values)


def as_csv(folder: Path, label: float) -> str:
    (folder / "x.csv").write_text("".join(f"{each},1,2\n" for each in labels(label)))
    return str(folder / "x.csv")


INTEGERS: list[Callable[[Path, float], str]] = [
    as_arrow, as_parquet, as_npz, as_npz_compressed, as_kvfile, as_lmdb, as_csv,
]  # fmt: skip


@pytest.mark.parametrize("label", [2**32 + 3, -(2**31) - 1, 2**31])
@pytest.mark.parametrize("make", INTEGERS)
def test_none_wraps(make: Callable[[Path, float], str], label: int, tmp_path: Path) -> None:
    url = make(tmp_path, label)
    message = rf"{re.escape(url)}.*(record|line) [34].*label {label}(\.0)? does not fit in 32 bits"
    with open_store(url) as store, pytest.raises(DataError, match=message):
        read_all(store)
    kind = {".bin": "kvfile"}.get(Path(url).suffix, Path(url).suffix[1:])
    with pytest.raises(DataError, match=message):
        convert(kind, [url], str(tmp_path / "out.arrow"))


@pytest.mark.parametrize("label", [2**31 - 1, -(2**31), -1])
@pytest.mark.parametrize("make", INTEGERS)
def test_what_fits_is_read(make: Callable[[Path, float], str], label: int, tmp_path: Path) -> None:
    with open_store(make(tmp_path, label)) as store:
        assert read_all(store)["label"].tolist() == labels(label)


def test_unsigned_labels_of_64_bits(tmp_path: Path) -> None:
    for make in (as_arrow, as_parquet):
        with open_store(make(tmp_path, 2**64 - 1)) as store:
            with pytest.raises(DataError, match="record 3: the label 18446744073709551615 does not fit"):
                read_all(store)


@pytest.mark.parametrize("label", [2**32 + 3, -(2**31) - 1])
def test_none_wraps_in_a_tfrecord(label: int, tmp_path: Path) -> None:
    messages = [
        foreign.example({"image": VALUES[i].tobytes(), "label": int(each)}, packed=i % 2 == 0)
        for i, each in enumerate(labels(label))
    ]
    (tmp_path / "x.tfrecord").write_bytes(b"".join(map(foreign.frame, messages)))
    with open_store(str(tmp_path / "x.tfrecord")) as store:
        with pytest.raises(DataError, match=f"record 3: the label {label} does not fit in 32 bits"):
            read_all(store)


@pytest.mark.parametrize("make", [as_npz, as_npz_compressed, as_csv])
def test_no_fraction_is_cut_off(make: Callable[[Path, float], str], tmp_path: Path) -> None:
    with open_store(make(tmp_path, 1.7)) as store:
        with pytest.raises(DataError, match=r"(record 3:|line 4, column '1':) the label 1.7 is not an integer"):
            read_all(store)
    if make is not as_csv:
        # as numpy has them where one was no number once
        with open_store(make(tmp_path, 3.0)) as store:
            assert read_all(store)["label"].tolist() == [0, 1, 2, 3, 4]
        with open_store(make(tmp_path, np.nan)) as store:
            with pytest.raises(DataError, match="record 3: the label nan is not an integer"):
                read_all(store)


@pytest.mark.parametrize("backend", ["arrow", "csv", "kvfile", "lmdb", "npz", "parquet"])
def test_none_wraps_when_it_is_written(backend: str, tmp_path: Path) -> None:
    target = STORES.find(backend)
    records = {"pixel": VALUES, "label": np.array(labels(2**32 + 3))}
    with pytest.raises(DataError, match=r"out.*record 3: the label 4294967299 does not fit in 32 bits"):
        target.write(str(tmp_path / "out"), records)
    chunks = ({name: array[i : i + 1] for name, array in records.items()} for i in range(N))
    with pytest.raises(DataError, match=r"out.*record 3: the label 4294967299 does not fit in 32 bits"):
        target.write(str(tmp_path / "out"), chunks)
    url = written(tmp_path, backend, {"pixel": VALUES, "label": np.arange(N)})
    with open_store(url) as store:
        assert store.schema["label"].dtype == np.int32
        assert read_all(store)["label"].tolist() == list(range(N))


def test_an_image_list(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("a.png 1\nb.png 4294967299\n")
    with pytest.raises(DataError, match=r"list.txt, line 2: the label 4294967299 does not fit in 32 bits"):
        open_store(str(tmp_path / "list.txt"), "image-list")


def test_labels_of_other_types() -> None:
    same = np.arange(3, dtype=np.int32)
    assert as_labels(same, "x") is same
    assert as_labels(np.array([True, False]), "x").tolist() == [1, 0]
    with pytest.raises(DataError, match="x, record 7: labels of type <U1, expected integers"):
        as_labels(np.array(["a"]), "x", 7)
