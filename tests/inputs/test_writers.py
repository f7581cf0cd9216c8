"""Output layers that write files: each worker writes its own rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.data.stores import open_store
from singa_dask.errors import ConfigError
from singa_dask.layers import Context, Layer
from singa_dask.testing.case import forward, source, wire

TEST = Context(phase=Phase.TEST)


def write(kind: str, path: Path, context: Context = TEST, n_batches: int = 2, **more: object) -> Layer:
    x = source((2, 3), labels=[4, 5], grad=False)
    x.data[...] = [[1, 2.5, -3], [0.1234567, 5, 6]]
    layer = wire(kind, [x], context, store_conf={"path": str(path), **more})
    for _ in range(n_batches):
        forward(layer)
    layer.close()
    return layer


def test_csv_output(tmp_path: Path) -> None:
    write("CSVOutput", tmp_path / "out.csv", backend="textfile")
    lines = ["4,1.000000,2.500000,-3.000000", "5,0.123457,5.000000,6.000000"]
    assert (tmp_path / "out.csv").read_text().splitlines() == 2 * lines


def test_each_worker_writes_its_own_file(tmp_path: Path) -> None:
    for worker in range(2):
        write("CSVOutput", tmp_path / "out.csv", Context(phase=Phase.TEST, worker=worker, n_workers=2))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out-0.csv", "out-1.csv"]


def test_record_output(tmp_path: Path) -> None:
    write("RecordOutput", tmp_path / "out.bin", backend="kvfile")
    with open_store(str(tmp_path / "out.bin"), "kvfile") as store:
        assert store.count == 4
        arrays = store.read_block(0)
    np.testing.assert_array_equal(arrays["label"], [4, 5, 4, 5])
    np.testing.assert_allclose(arrays["data"][:2], [[1, 2.5, -3], [0.1234567, 5, 6]], rtol=1e-6)


def test_images_are_written_in_the_order_of_their_axes(tmp_path: Path) -> None:
    x = source((2, 3, 4, 5), grad=False)
    for kind, name in (("RecordOutput", "out.bin"), ("CSVOutput", "out.csv")):
        layer = wire(kind, [x], TEST, store_conf={"path": str(tmp_path / name)})
        forward(layer)
        layer.close()
    with open_store(str(tmp_path / "out.bin"), "kvfile") as store:
        np.testing.assert_allclose(store.read_block(0)["data"], x.data, rtol=1e-6)
    np.testing.assert_allclose(np.loadtxt(tmp_path / "out.csv", delimiter=","), x.data.reshape(2, -1), atol=1e-6)


def test_no_batch_no_file(tmp_path: Path) -> None:
    for kind in ("CSVOutput", "RecordOutput"):
        write(kind, tmp_path / "out", n_batches=0)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_needs_a_path() -> None:
    with pytest.raises(ConfigError, match=r"store_conf.path: CSVOutput needs a file to write to"):
        wire("CSVOutput", [source((2, 3))], TEST)


def test_a_writer_does_not_change_records_at_random(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"store_conf.augment: CSVOutput does not change records"):
        wire("CSVOutput", [source((2, 3))], TEST, store_conf={"path": str(tmp_path / "out"), "augment": {"noise": 1}})
