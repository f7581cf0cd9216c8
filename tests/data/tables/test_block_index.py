"""The index of a large table: stored in the cache, and read for the same files and options alone."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.data.stores.tables import table_store
from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.data.tables import block_index
from singa_dask.data.tables.files import csv_part
from singa_dask.data.tables.table_reader import TableReader
from singa_dask.fs.cache import open_cache
from tests.contracts.records import assert_same, read_all

HEADER = "a,kind\n"
ROWS = "".join(f"{i / 7},{'pear' if i % 3 else 'apple'}\n" for i in range(200))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of a cache; indices of short tables are stored there, too."""
    monkeypatch.setattr(table_store, "MIN_INDEXED_BYTES", 1)
    monkeypatch.setenv("SINGA_DASK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a table."""
    path = tmp_path / "fruit.csv"
    path.write_text(HEADER + ROWS)
    return path


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the URL of each table that is scanned."""
    scanned: list[str] = []
    scan = TableReader.learn
    monkeypatch.setattr(TableReader, "learn", lambda table, *how: scanned.append(table.url) or scan(table, *how))
    return scanned


def opened(path: Path | str, **options: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    with TableStore(str(path), **{"label": "kind", **options}) as store:
        return store.class_names, read_all(store)


def indices(cache: Path) -> list[Path]:
    return sorted(set((cache / "tables").glob("*")) - set(runs(cache)))


def runs(cache: Path) -> list[Path]:
    return sorted((cache / "tables").glob("*-runs.json"))


def test_a_table_is_scanned_once(path: Path, scans: list[str], cache: Path) -> None:
    names, expected = opened(path)
    found, again = opened(path)
    assert found == names == ("apple", "pear") and len(scans) == 1
    assert_same(again, expected)
    # a cache of remote data in the same directory finds nothing of others
    assert open_cache().folder == cache


@pytest.mark.parametrize("options", [{"missing": 0}, {"features": ["a"]}, {"block_bytes": 100}])
def test_other_options_have_another_index(path: Path, scans: list[str], options: dict[str, Any]) -> None:
    _, expected = opened(path)
    _, found = opened(path, **options)
    assert len(scans) == 2
    assert_same(found, expected)


def test_a_changed_table_is_scanned_again(path: Path, scans: list[str]) -> None:
    opened(path)
    before = os.stat(path)
    path.write_text(HEADER + ROWS.replace("apple", "mango"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert opened(path)[0] == ("mango", "pear")
    assert len(scans) == 2


@pytest.mark.parametrize("far", [False, True])
def test_a_table_that_is_replaced_while_it_is_scanned(
    path: Path, monkeypatch: pytest.MonkeyPatch, far: bool, tmp_path: Path
) -> None:
    url = f"memory://{tmp_path.name}/fruit.csv" if far else str(path)
    fs.write_atomic(url, (HEADER + ROWS).encode())
    scan = TableReader.learn

    def scan_and_replace(table: TableReader, *how: Any) -> block_index.TableIndex:
        index = scan(table, *how)
        fs.write_atomic(url, (HEADER + ROWS.replace("apple", "mango")).encode())
        return index

    with monkeypatch.context() as patch:
        patch.setattr(TableReader, "learn", scan_and_replace)
        TableStore(url, label="kind").close()
    assert opened(url)[0] == ("mango", "pear")


def test_another_tokenizer(path: Path, scans: list[str], tmp_path: Path) -> None:
    hugging_face = pytest.importorskip("tokenizers")
    path.write_text("text,kind\n" + "red apple,a\ngreen pear,b\n" * 9)
    options = {"features": ["text"], "texts": {"text": {"length": 3, "tokenizer": str(tmp_path / "tokenizer.json")}}}
    found = []
    for words in (["red", "apple"], ["apple", "red"]):
        numbers = {word: i for i, word in enumerate([*words, "?"])}
        made = hugging_face.Tokenizer(hugging_face.models.WordLevel(numbers, unk_token="?"))
        made.pre_tokenizer = hugging_face.pre_tokenizers.Whitespace()
        made.save(str(tmp_path / "tokenizer.json"))
        found.append(opened(path, **options)[1]["data"][0].tolist())
    assert found == [[0, 1, -1], [1, 0, -1]] and len(scans) == 2


def test_parts_have_their_runs_from_one_scan(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parts are together the table; the second one is found without a scan of the file for ends of records."""
    read: list[str] = []
    find = csv_part.CsvPart.runs
    monkeypatch.setattr(csv_part.CsvPart, "runs", lambda part, *sizes: read.append(part.url) or find(part, *sizes))

    def part(name: str) -> Any:
        return opened(path, block_bytes=300, split={"part": name, "test_share": 0.3, "seed": 1})[1]["data"]

    parts = [part("train"), part("test")]
    assert (len(read), len(runs(cache)), len(indices(cache))) == (1, 1, 2)
    assert sorted(np.concatenate(parts).tolist()) == sorted(opened(path)[1]["data"].tolist())
    for content in (b"", b"[]", b"[[0]]"):
        for file in (*runs(cache), *indices(cache)):
            file.write_bytes(content)
        np.testing.assert_array_equal(part("train"), parts[0])
        np.testing.assert_array_equal(part("test"), parts[1])
    path.write_text(HEADER + "".join(ROWS.splitlines(keepends=True)[:100]))
    assert 0 < len(part("train")) < len(parts[0])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", b'{"kinds": 1, "numbering": [], "pieces": []}'])
def test_a_damaged_index_is_replaced(path: Path, cache: Path, scans: list[str], content: bytes) -> None:
    opened(path)
    (file,) = indices(cache)
    whole = file.read_bytes()
    file.write_bytes(content)
    assert opened(path)[0] == ("apple", "pear")
    assert (len(scans), file.read_bytes()) == (2, whole)


def test_a_cache_that_cannot_be_used(path: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=block_index.__name__)
    cache.write_text("a file")
    names, _ = opened(path)
    caplog.clear()
    assert opened(path)[0] == names
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.message.startswith(f"{path}: its index is not stored, so each process scans the table: ")
    assert sorted(each.name for each in path.parent.iterdir()) == ["cache", "fruit.csv"]


def test_a_user_without_a_home(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SINGA_DASK_CACHE")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    opened(path)
    assert os.listdir() == ["fruit.csv"]


def test_the_cache_of_the_job_is_used(path: Path, cache: Path, tmp_path: Path) -> None:
    with TableStore(str(path), {fs.CACHE: {"dir": str(tmp_path / "other")}}, label="kind"):
        assert len(indices(tmp_path / "other")) == 1 and not indices(cache)


def test_what_was_not_used_for_longest_goes_first(path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_index, "MAX_INDICES", 3)
    files = []
    for missing in (0, 1):
        opened(path, missing=missing)
        files += set(indices(cache)) - set(files)
    for file in files:
        os.utime(file, (0, 0))
    opened(path, missing=0)
    opened(path, missing=2)
    assert files[0] in indices(cache) and files[1] not in indices(cache)


def _open_often(path: str, n: int, results: Any) -> None:
    table_store.MIN_INDEXED_BYTES = 1
    logging.basicConfig(level=logging.DEBUG, filename=f"{path}.{os.getpid()}.log")
    results.put([opened(path, missing=i)[0] for i in range(n)])


@pytest.mark.long
def test_processes_that_open_a_table_at_once(path: Path, tmp_path: Path) -> None:
    """No process reads an index that another one has not finished."""
    spawn = multiprocessing.get_context("spawn")
    results: Any = spawn.SimpleQueue()
    processes = [spawn.Process(target=_open_often, args=(str(path), 30, results)) for _ in range(8)]
    for process in processes:
        process.start()
    assert [results.get() for _ in processes] == [[("apple", "pear")] * 30] * 8
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 8
    said = "".join(log.read_text() for log in tmp_path.glob("*.log"))
    # an index that was missing is no harm, but one that was only half there
    assert said.count("no index can be read") == said.count("no index can be read: FileNotFoundError") >= 30
    for file in indices(Path(os.environ["SINGA_DASK_CACHE"])):
        json.loads(file.read_text())
    assert len(indices(Path(os.environ["SINGA_DASK_CACHE"]))) == 30
