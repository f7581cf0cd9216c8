"""Converters: from the formats of others to ours, shuffled and split, whole or not at all; the digits they made."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from singa_dask.data.convert import backend_of, parse_split
from singa_dask.data.stores import open_store
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, DataError
from tests.contracts.records import SUFFIX, assert_same, floats, pixels, read_all
from tests.converting import convert
from tests.selection import mostly_soak

DIGITS = Path(__file__).parents[3] / "data" / "digits"
RECORDS = pixels(100, (4, 5))


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x0800 | array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def sources(folder: Path, kind: str, records: Arrays) -> list[str]:
    """Write records as others do."""
    if kind == "idx":
        files = {"images": idx(records["pixel"]), "labels.gz": gzip.compress(idx(records["label"]))}
    elif kind == "cifar":
        rows = np.concatenate([records["label"][:, None].astype(np.uint8), records["pixel"].reshape(100, -1)], axis=1)
        files = {"batch_1.bin": rows[:60].tobytes(), "batch_2.bin": rows[60:].tobytes()}
    elif kind == "csv":
        rows = np.concatenate([records["label"][:, None], records["pixel"].reshape(100, -1)], axis=1)
        files = {"lines.csv": "\n".join(",".join(map(str, row)) for row in rows.tolist()).encode()}
    else:
        np.savez(folder / "arrays.npz", images=records["pixel"], labels=records["label"])
        return [str(folder / "arrays.npz")]
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [str(folder / name) for name in files]


def read(url: str | Path) -> Arrays:
    with open_store(str(url)) as store:
        return read_all(store)


def each_with_another(kinds: Sequence[str], backends: Sequence[str]) -> list[tuple[str, str]]:
    """Return all pairs, those of a kind one after the other, and first of each kind another backend in turn."""
    return [(kind, backends[(i + k) % len(backends)]) for i, kind in enumerate(kinds) for k in range(len(backends))]


KINDS, BACKENDS = ["idx", "cifar", "csv", "npz"], ["arrow", "lmdb", "csv", "kvfile"]


@pytest.mark.parametrize(("kind", "backend"), mostly_soak(each_with_another(KINDS, BACKENDS), len(BACKENDS)))
def test_each_kind_to_each_store(kind: str, backend: str, tmp_path: Path) -> None:
    records = pixels(100, (3, 32, 32)) if kind == "cifar" else RECORDS
    target = str(tmp_path / f"out{SUFFIX[backend]}")
    assert convert(kind, sources(tmp_path, kind, records), target) == {target: 100}
    found = read(target)
    name = "data" if "csv" in (kind, backend) else "pixel"
    np.testing.assert_array_equal(found[name].reshape(100, -1), records["pixel"].reshape(100, -1))
    np.testing.assert_array_equal(found["label"], records["label"])


def test_floats_of_npz_without_labels(tmp_path: Path) -> None:
    records = floats(10, labels=False)
    np.savez(tmp_path / "x.npz", x=records["data"].astype(np.float64))
    convert("npz", [str(tmp_path / "x.npz")], str(tmp_path / "x.arrow"))
    assert_same(read(tmp_path / "x.arrow"), records)


def test_csv_options(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1;2;3;4\n5;6;7;8\n")
    reading = {"separator": ";", "has_label": False, "shape": (2, 2)}
    convert("csv", [str(tmp_path / "x.txt")], str(tmp_path / "x.arrow"), reading=reading)
    assert read(tmp_path / "x.arrow")["data"].shape == (2, 2, 2)


def test_keys_are_those_of_singas_tools(tmp_path: Path) -> None:
    for kind, shape, key in (("idx", (4, 5), b"00000099"), ("cifar", (3, 32, 32), b"00099")):
        convert(kind, sources(tmp_path, kind, pixels(100, shape)), str(tmp_path / "out.bin"))
        assert key in (tmp_path / "out.bin").read_bytes()


def test_a_split_keeps_the_share_of_each_label(tmp_path: Path) -> None:
    records = pixels(1000, (2,))
    files = sources_of(tmp_path, records)
    split = {"train": 0.7, "test": 0.2}
    target = str(tmp_path / "{split}.arrow")
    written = convert("npz", files, target, split=split, shuffle=5)
    assert written == {str(tmp_path / "train.arrow"): 700, str(tmp_path / "test.arrow"): 200}
    parts = {name: read(tmp_path / f"{name}.arrow") for name in split}
    counts = np.bincount(records["label"], minlength=10)
    for name, share in split.items():
        assert np.abs(np.bincount(parts[name]["label"], minlength=10) - share * counts).max() <= 1.5
    again = tmp_path / "again-{split}.arrow"
    convert("npz", files, str(again), split=split, shuffle=5)
    assert (tmp_path / "again-train.arrow").read_bytes() == (tmp_path / "train.arrow").read_bytes()


def sources_of(folder: Path, records: Arrays) -> list[str]:
    np.savez(folder / "all.npz", images=records["pixel"], labels=records["label"])
    return [str(folder / "all.npz")]


def test_parts_have_no_record_in_common_and_are_named(tmp_path: Path) -> None:
    records = pixels(100, (2,))
    records["label"] = np.arange(100, dtype=np.int32)
    convert("npz", sources_of(tmp_path, records), str(tmp_path / "d.arrow"), split={"a": 0.5, "b": 0.5})
    first, second = (read(tmp_path / f"d-{name}.arrow")["label"] for name in "ab")
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(100))
    assert first.tolist() == sorted(first.tolist())


def test_shuffle_and_limit(tmp_path: Path) -> None:
    files = sources(tmp_path, "idx", RECORDS)
    convert("idx", files, str(tmp_path / "a.arrow"), limit=7)
    assert_same(read(tmp_path / "a.arrow"), {name: array[:7] for name, array in RECORDS.items()})
    convert("idx", files, str(tmp_path / "b.arrow"), shuffle=1)
    convert("idx", files, str(tmp_path / "c.arrow"), shuffle=2)
    shuffled, other = read(tmp_path / "b.arrow"), read(tmp_path / "c.arrow")
    assert not np.array_equal(shuffled["pixel"], other["pixel"])
    assert sorted(map(bytes, shuffled["pixel"])) == sorted(map(bytes, RECORDS["pixel"]))


def test_the_mean_is_of_the_first_part(tmp_path: Path) -> None:
    files = sources(tmp_path, "idx", RECORDS)
    convert("idx", files, str(tmp_path / "d.arrow"), split={"a": 0.5, "b": 0.5}, mean=str(tmp_path / "mean.bin"))
    expected = read(tmp_path / "d-a.arrow")["pixel"].mean(axis=0)
    assert b"mean" in (tmp_path / "mean.bin").read_bytes()[:16]
    np.testing.assert_allclose(read(tmp_path / "mean.bin")["data"], expected[None], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "files", "message"),
    [
        ("idx", {"a": b"\0\0\x08\x03"}, r"/a: the file is truncated within an idx header of 3 dimensions"),
        ("idx", {"a": b"PNG"}, r"/a: not an idx file of bytes: it begins with 50 4e 47"),
        ("idx", {"a": idx(np.zeros((2, 2, 2))) + b"x"}, r"/a: the file has 9 bytes after the header"),
        ("idx", {"a": idx(np.zeros((2, 2, 2))), "b": idx(np.zeros(3))}, "there are 2 images, but 3 labels"),
        ("idx", {"a": idx(np.zeros(3))}, "no file has images"),
        ("idx", {"a": idx(np.zeros((2, 2, 2))), "b": idx(np.zeros((2, 3, 2)))}, "different shapes"),
        ("idx", {"a": b"\x1f\x8bxxxx"}, "/a: the gzip file is damaged"),
        ("cifar", {"a": b"12345"}, r"/a: the file has 5 bytes, which are not whole CIFAR records"),
        ("csv", {"a": b"1,2\n1,x\n"}, r"/a, line 2, column '2': 'x' is not a number"),
        ("npz", {"a": b"12345"}, "/a: not an npz file, or a damaged one"),
    ],
)
def test_bad_sources(kind: str, files: dict[str, bytes], message: str, tmp_path: Path) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message):
        convert(kind, [str(tmp_path / name) for name in files], str(tmp_path / "out.arrow"))
    assert not (tmp_path / "out.arrow").exists()


def test_npz_without_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", pictures=np.zeros(3))
    with pytest.raises(DataError, match=r"no array called images or .* Arrays: pictures"):
        convert("npz", [str(tmp_path / "x.npz")], str(tmp_path / "x.arrow"))
    np.savez(tmp_path / "x.npz", images=np.zeros((3, 2)), labels=np.zeros(2))
    with pytest.raises(DataError, match=r"have different lengths: \{'images': 3, 'labels': 2\}"):
        convert("npz", [str(tmp_path / "x.npz")], str(tmp_path / "x.arrow"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "ixd"}, r"unknown kind of source 'ixd'\. Did you mean 'idx'\?"),
        ({"destination": "out.xyz"}, r"out\.xyz: cannot detect the format to write"),
        ({"backend": "arow"}, "unknown store backend 'arow'"),
        ({"backend": "jsonl"}, r"records cannot be written as jsonl\. Known: arrow, .*, parquet"),
        ({"split": {"a": 0.9, "b": 0.2}}, "sum to at most 1"),
        ({"reading": {"separator": ","}}, "unknown option 'separator' of sources of kind idx"),
        ({"writing": {"compresion": "lz4"}}, "unknown option 'compresion' of what is written.*'compression'"),
    ],
)
def test_arguments_that_make_no_sense(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    arguments = {"kind": "idx", "sources": sources(tmp_path, "idx", RECORDS), "destination": str(tmp_path / "o.arrow")}
    with pytest.raises(ConfigError, match=message):
        convert(**{**arguments, **changes})


def test_parse_split() -> None:
    assert parse_split("train=0.8, test=0.2") == {"train": 0.8, "test": 0.2}
    for text in ("train", "train=x", "train=0.8,test=0.3", "train=0"):
        with pytest.raises(ConfigError, match="split"):
            parse_split(text)


def test_the_digits_of_the_repository() -> None:
    train, test = read(DIGITS / "train.arrow"), read(DIGITS / "test.arrow")
    assert (train["pixel"].shape, test["pixel"].shape) == ((8000, 28, 28), (2000, 28, 28))
    counts = np.array([1001, 1127, 991, 1032, 980, 863, 1014, 1070, 944, 978])
    np.testing.assert_array_equal(np.bincount(train["label"]) + np.bincount(test["label"]), counts)
    assert np.abs(np.bincount(test["label"]) - counts / 5).max() < 1
    assert sum(path.stat().st_size for path in DIGITS.glob("*.arrow")) < 2_500_000


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_labels_that_are_no_integers_are_refused(kind: str, tmp_path: Path) -> None:
    table = pa.table({"pixel": pa.array([b"abcd"] * 2, pa.binary(4)), "label": [0.0, 1.7]})
    url = str(tmp_path / f"a.{kind}")
    if kind == "parquet":
        pq.write_table(table, url)
    else:
        with pa.ipc.new_file(url, table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(DataError, match=r"the label 1\.7 is not an integer"):
        convert(kind, [url], str(tmp_path / "out.arrow"))


def test_the_format_to_write_is_one_that_can_be_written() -> None:
    assert backend_of("a.parquet") == "parquet"
    with pytest.raises(ConfigError, match="cannot detect the format to write"):
        backend_of("a.npy")
