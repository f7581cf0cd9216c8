"""JSON lines: which keys are read, labels that are text, and how wrong lines are named."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.stores import open_store, write_manifest
from singa_dask.errors import DataError
from tests.contracts.records import assert_same, read_all

PIXELS = np.random.default_rng(0).integers(0, 256, (50, 2, 3, 4), dtype=np.uint8)
ROWS = np.random.default_rng(0).normal(size=(50, 3))
LABELS = np.arange(50, dtype=np.int32) % 3
NAMES = ("cat", "dog", "fox")
TEXT = [NAMES[label] for label in LABELS]


def lines(records: Iterable[Any]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def table(**columns: Any) -> bytes:
    values = [array.tolist() if isinstance(array, np.ndarray) else array for array in columns.values()]
    return lines(dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))


def found(path: Path, data: bytes, **options: object) -> dict[str, np.ndarray]:
    path.write_bytes(data)
    with open_store(str(path), **options) as store:
        return read_all(store)


def refused(path: Path, data: bytes, message: str, **options: object) -> None:
    with pytest.raises(DataError) as caught:
        found(path, data, **options)
    assert str(caught.value).replace(f"{path.parent}/", "") == message


def test_keys_that_are_known(tmp_path: Path) -> None:
    path, as_floats = tmp_path / "x.jsonl", ROWS.astype(np.float32)
    expected = {"data": as_floats, "label": LABELS}
    assert_same(found(path, table(features=ROWS, label=LABELS)), expected)
    assert_same(found(path, table(note=TEXT, y=LABELS, x=ROWS)), expected)
    assert_same(found(path, table(data=ROWS)), {"data": as_floats})
    assert_same(found(path, table(pixel=PIXELS, label=LABELS)), {"pixel": PIXELS, "label": LABELS})
    assert_same(found(path, table(image=PIXELS), dtype="float32"), {"data": PIXELS.astype(np.float32)})
    assert_same(found(path, table(features=PIXELS), dtype="uint8"), {"pixel": PIXELS})
    assert_same(found(path, table(features=PIXELS / 255)), {"data": (PIXELS / 255).astype(np.float32)})


def test_a_number_for_each_key(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    data = table(a=ROWS[:, 0], b=ROWS[:, 1], kind=TEXT, c=ROWS[:, 2], species=LABELS)
    expected = {"data": ROWS[:, [2, 0]].astype(np.float32), "label": LABELS}
    assert_same(found(path, data, features=["c", "a"], label="species"), expected)
    assert_same(found(path, data, features="a"), {"data": ROWS[:, :1].astype(np.float32)})
    numbers = table(a=ROWS[:, 0], b=ROWS[:, 1], label=LABELS)
    assert_same(found(path, numbers), {"data": ROWS[:, :2].astype(np.float32), "label": LABELS})
    refused(
        path,
        data,
        "x.jsonl, line 1: the record has no list of numbers called features or data or x or pixel or pixels or "
        "image or images. Set features to keys of it: a, b, c, species, kind.",
    )
    refused(path, data, "x.jsonl, line 1: kind is 'cat', expected a number.", features=["a", "kind"])
    refused(path, data, "x.jsonl, line 1: column 'd' is missing. Columns: a, b, kind, c, species.", features=["a", "d"])
    refused(path, data, "x.jsonl, line 1: a is both a feature and the label.", features="a", label="a")


def test_labels_that_are_text(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    data = table(features=ROWS, label=TEXT)
    expected = {"data": ROWS.astype(np.float32), "label": LABELS}
    path.write_bytes(data)
    with open_store(str(path), block_bytes=500) as store:
        assert store.class_names == NAMES
        assert_same(read_all(store), expected)
    other = ("fox", "cat", "dog")
    with open_store(str(path), classes=other) as store:
        assert store.class_names == other
        assert [other[i] for i in read_all(store)["label"]] == TEXT
    write_manifest(str(path), classes=other)
    with open_store(str(path)) as store:
        assert store.class_names == other
        assert store.blocks[0].crc is not None
    refused(
        path,
        data,
        "x.jsonl, line 3, column 'label': unknown category 'fox'. Expected a known one: cat, dog.",
        classes=["cat", "dog"],
    )


def test_blocks_and_files_elsewhere(tmp_path: Path) -> None:
    data, expected = table(features=ROWS, label=LABELS), {"data": ROWS.astype(np.float32), "label": LABELS}
    for url, text in (
        ("memory://jsonl/x.jsonl", data),
        ("memory://jsonl/x.jsonl.gz", gzip.compress(data)),
        ("memory://jsonl/bom.ndjson", b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n") + b"\n \n"),
    ):
        fs.write_atomic(url, text)
        with open_store(url, block_bytes=300) as store:
            assert len(store.blocks) > 5
            assert_same(read_all(store), expected)
    fs.remove_tree("memory://jsonl")


FIRST = ", as in most of the first lines"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", ": not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        (b"", ": empty, expected an object of JSON"),
        (b"[1]", ': not an object of JSON: expected {"features": [...], "label": ...}'),
        (b'{"features": [1, 2]}', ", column 'features': 2 values, expected 3"),
        (b'{"features": [[1], [2]], "label": 1}', f": column 'features' is [[1], [2]], expected a vector{FIRST}"),
        (b'{"features": [1, 2, "3"], "label": 1}', f": column 'features' is [1, 2, '3'], expected a vector{FIRST}"),
        (
            b'{"features": [1, 2, null], "label": 1}',
            ", column 'features': no value. Set missing: to mean, to skip, or to a number for features without a value",
        ),
        (b'{"features": [1, 2, 1e300], "label": 1}', ", column 'features': 1e+300 does not fit in a float of 32 bits"),
        (
            b'{"features": null, "label": 1}',
            ", column 'features': no value. Set missing: skip to leave such records out",
        ),
        (
            b'{"features": [1, 2, 3]}',
            ", column 'label': no value. Set unlabelled: skip to leave such records out",
        ),
        (
            b'{"features": [1, 2, 3], "label": "cat"}',
            f": column 'label' is 'cat', expected a number{FIRST}. Set na_values: [cat] if it means a missing value",
        ),
        (
            b'{"features": [1, 2, 3], "label": 1.5}',
            ", column 'label': the label 1.5 is not an integer. Labels are indices of classes",
        ),
        (
            b'{"features": [1, 2, 3], "label": 4294967299}',
            ", column 'label': the label 4294967299.0 does not fit in 32 bits",
        ),
    ],
)
def test_wrong_lines_are_named(line: bytes, message: str, tmp_path: Path) -> None:
    path, good = tmp_path / "x.jsonl", b'{"features": [1, 2, 3.5], "label": 1}'
    data = b"\n".join([good, good, line, good])
    refused(path, data, f"x.jsonl, line 3{message}.")
    with open_store(str(path)) as store:
        arrays, bad = store.salvage(0)
        assert list(bad) == [2]
        assert arrays["data"][[0, 1, 3]].tolist() == [[1, 2, 3.5]] * 3


def test_arrays_of_another_shape_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    data = b'{"x": [[1, 2], [3, 4]]}\n{"x": [[5, 6], [7, 8]]}\n{"x": [[5, 6], [7]]}\n'
    refused(path, data, "x.jsonl, block 0, x, record 2: 1 values, expected 2.")
    with open_store(str(path)) as store:
        arrays, bad = store.salvage(0)
    assert list(bad) == [2]
    assert arrays["data"][:2].tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]


def test_files_that_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    refused(path, b" \n", "x.jsonl: no lines. The file is empty.")
    refused(
        path,
        b"{}",
        "x.jsonl, line 1: the record has no list of numbers called features or data or x or pixel or pixels or "
        "image or images. Set features to keys of it: .",
    )
    refused(path, b'{"x": ["a"]}', "x.jsonl, line 1: x is not a list of numbers.")
    refused(
        path,
        b'{"x": [1]}',
        "x.jsonl: dtype: unknown value 'int8'. Did you mean 'uint8'? Known: float32, uint8.",
        dtype="int8",
    )
    pixels = b'{"pixel": [1, 2]}\n{"pixel": [1, 256]}'
    message = "pixel has other values than integers from 0 to 255, unlike the first line. Set dtype: float32."
    refused(path, pixels, f"x.jsonl, line 2: {message}")
