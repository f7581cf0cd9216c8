"""Files that end within a record, which can be read as far as they go, and those that cannot be opened at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.data.loading import BadPolicy, Loader
from singa_dask.data.stores import open_store
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError
from tests.contracts.foreign import write_foreign
from tests.contracts.records import assert_same, floats, pixels, stored, written
from tests.data.loading.test_bad_records import BATCH, N, order_of, run
from tests.data.stores.test_lmdb import datum, write_values


def truncated(folder: Path, backend: str) -> tuple[str, Arrays, str]:
    records = floats(N + 1)
    url = written(folder, backend, records)
    data = Path(url).read_bytes()
    Path(url).write_bytes(data.rstrip()[:-25] if backend == "csv" else data[:-5])
    return url, {name: array[:N] for name, array in records.items()}, rf"{N + backend.count('csv')}"


@pytest.mark.parametrize("pattern", [False, True])
@pytest.mark.parametrize("backend", ["csv", "kvfile"])
def test_a_torn_end_is_one_bad_record(tmp_path: Path, backend: str, pattern: bool) -> None:
    url, records, place = truncated(tmp_path, backend)
    with pytest.raises(DataError, match=rf"{Path(url).name}.*(truncated .*record|line) {place}"):
        with open_store(url) as store, Loader(store, order_of(store)) as loader:
            run(loader, N // BATCH)
    asked = url.replace("records", "rec*") if pattern else url
    with open_store(asked, truncated=True) as store:
        assert store.count == N
        with Loader(store, order_of(store), policy=BadPolicy("skip", 1)) as loader:
            ids, arrays = run(loader, N // BATCH)
            assert ids.tolist() == list(range(N))
            assert_same(arrays, records)
            (bad,) = loader.bad.take()
            assert len(loader.bad.records) == 1
    assert (bad.block, bad.row) == (None, None)
    assert "truncated " in bad.reason
    assert place in bad.reason


def test_a_wrong_length_in_the_midst_is_no_torn_end(tmp_path: Path) -> None:
    url = written(tmp_path, "kvfile", pixels(N))
    data = bytearray(Path(url).read_bytes())
    data[10 * len(data) // N + 1] = 255
    Path(url).write_bytes(data)
    with pytest.raises(
        DataError, match=r"records\.bin: truncated at byte .*record 10 is incomplete, .* bytes are left"
    ):
        open_store(url, truncated=True)


def test_a_last_line_that_has_an_end_is_a_record(tmp_path: Path) -> None:
    path = tmp_path / "lines.csv"
    path.write_text("1,2,3\n4,5,6\n7,8\n")
    with open_store(str(path), truncated=True) as store:
        assert (store.count, store.truncation) == (3, "")
        assert store.salvage(0)[1] == {2: f"{path}, line 3: 2 fields, expected 3: a label and 2 numbers"}
    path.write_text("1,2,3")
    with open_store(str(path), truncated=True) as store:
        assert store.count == 1


def cut_lmdb(folder: Path) -> str:
    url = written(folder, "lmdb", pixels(400))
    path = Path(url) / "data.mdb"
    path.write_bytes(path.read_bytes()[:-1])
    return url


def empty(folder: Path) -> str:
    (folder / "empty.csv").touch()
    return str(folder / "empty.csv")


def bad_first(folder: Path) -> str:
    return write_values(folder, [b"text", datum(np.zeros((1, 2, 2), np.uint8), 1)])


def missing(folder: Path) -> str:
    return str(folder / "nowhere.arrow")


@pytest.mark.parametrize("options", [{}, {"truncated": True}])
@pytest.mark.parametrize("make", [cut_lmdb, empty, bad_first, missing])
def test_what_cannot_be_opened_is_an_error_under_every_policy(
    make: Callable[[Path], str], options: dict[str, Any], tmp_path: Path
) -> None:
    url = make(tmp_path)
    with pytest.raises(DataError, match=Path(url).name):
        open_store(url, **options)


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = write_foreign(
        tmp_path, "image-folder", {**pixels(N, (3, 4, 5)), "label": np.sort(np.arange(N, dtype=np.int32) % 3)}
    )

    def refuse(path: str, *_: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    # root may read everything, so the system is asked to refuse
    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(DataError, match=r"classes: .*Permission denied"):
        open_store(url, "image-folder", truncated=True)


def test_a_format_that_salvages_nothing_says_so(tmp_path: Path) -> None:
    with stored(tmp_path, "arrow", pixels(5)) as store:
        assert store.schema["pixel"] == Field(np.dtype(np.uint8), (3, 4))
        with pytest.raises(DataError, match=r"records\.arrow, block 0: cannot be read"):
            store.salvage(0)
