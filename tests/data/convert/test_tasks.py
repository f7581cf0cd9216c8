"""Plans and tasks of conversions: the same bytes whoever does the tasks and in whatever order, resumed or not."""

from __future__ import annotations

import os
import pickle
import posixpath
import resource
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from singa_dask import fs
from singa_dask.data.convert import plan as convert_plan
from singa_dask.data.convert import tasks
from singa_dask.data.convert.tasks import Task
from singa_dask.data.stores import open_store
from singa_dask.data.stores.images import image
from singa_dask.errors import DataError, SingaError
from tests.contracts.foreign import write_foreign
from tests.contracts.records import assert_same, floats, pixels, read_all, written
from tests.converting import convert
from tests.selection import few_examples, mostly_long

OPTIONS: dict[str, Any] = {"shuffle": 3, "split": {"a": 0.6, "b": 0.3}, "shards": 3}


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    """Make the directories of the outputs, as conversions make none."""
    for name in ("out", "whole", "direct", "backwards", "threads"):
        (tmp_path / name).mkdir()


@pytest.fixture
def source(tmp_path: Path) -> str:
    return written(tmp_path, "arrow", pixels(500, (4, 5)), "source", block_bytes=1000)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs and buckets of a few records."""
    monkeypatch.setattr(convert_plan, "DIRECT_BYTES", 1000)
    monkeypatch.setattr(convert_plan, "RUN_BYTES", 1500)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def backwards(tasks: Sequence[Task]) -> Iterator[int]:
    # as they travel to other processes
    return (pickle.loads(pickle.dumps(task))() for task in reversed(tasks))


def by_threads(tasks: Sequence[Task]) -> Iterable[int]:
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(Task.__call__, tasks))


VARIANTS: list[dict[str, Any]] = [OPTIONS, {**OPTIONS, "shuffle": None}, {"shuffle": 1, "limit": 77, "shards": 5}]


@pytest.mark.parametrize("options", mostly_long(VARIANTS, len(VARIANTS)))
def test_the_bytes_do_not_depend_on_who_does_the_tasks(
    options: dict[str, Any], source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("direct", "backwards", "threads"):
        if folder == "backwards":
            monkeypatch.setattr(convert_plan, "DIRECT_BYTES", 1000)
            monkeypatch.setattr(convert_plan, "RUN_BYTES", 1500)
        more = {"run": {"backwards": backwards, "threads": by_threads}[folder]} if folder != "direct" else {}
        target, mean = tmp_path / folder / "{split}.arrow", tmp_path / folder / "mean.bin"
        convert("arrow", [source], str(target), mean=str(mean), verify=True, **options, **more)
    expected = contents(tmp_path / "direct")
    assert len(expected) > 4
    assert contents(tmp_path / "backwards") == contents(tmp_path / "threads") == expected


@few_examples(15)
@given(
    n=st.integers(1, 60),
    shards=st.integers(1, 4),
    seed=st.none() | st.integers(0, 5),
    limit=st.none() | st.integers(1, 70),
    run_bytes=st.integers(1, 300),
    direct=st.booleans(),
)
def test_each_record_is_written_once(
    n: int,
    shards: int,
    seed: int | None,
    limit: int | None,
    run_bytes: int,
    direct: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("each")
    records = {"pixel": np.arange(n, dtype=np.uint8)[:, None], "label": np.arange(n, dtype=np.int32)}
    source = written(folder, "arrow", records, "source", block_bytes=20)
    count = min(n, limit or n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert_plan, "DIRECT_BYTES", 1 << 20 if direct else 0)
        patch.setattr(convert_plan, "RUN_BYTES", run_bytes)
        options: dict[str, Any] = {"shuffle": seed, "limit": limit, "shards": min(shards, count)}
        urls = convert("arrow", [source], str(folder / "out.arrow"), **options)
    found = np.concatenate([read_all(open_store(url))["label"] for url in urls])
    if seed is None:
        np.testing.assert_array_equal(found, np.arange(count))
    assert len(set(found.tolist()) & set(range(n))) == len(found) == count


@pytest.mark.usefixtures("small")
def test_it_goes_on_where_it_was_stopped(source: str, tmp_path: Path) -> None:
    done: list[tuple[str, int]] = []
    said: list[str] = []

    def run(tasks: Sequence[Task]) -> Iterator[int]:
        for task in tasks:
            if len(done) in (3, 15):
                done.append(("stopped", 0))
                raise KeyboardInterrupt
            done.append((task.step, task.index))
            yield task()

    target = str(tmp_path / "out" / "{split}.arrow")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            convert("arrow", [source], target, **OPTIONS, run=run, log=said.append)
        assert os.listdir(tmp_path / "out") == [".a.arrow.convert"]
    convert("arrow", [source], target, **OPTIONS, run=run, log=said.append)
    assert said == [f"{tmp_path}/out/.a.arrow.convert: resuming a conversion that was stopped."] * 2
    finished = [task for task in done if task[0] != "stopped"]
    assert len(finished) == len(set(finished))
    convert("arrow", [source], str(tmp_path / "whole" / "{split}.arrow"), **OPTIONS)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def stop(tasks: Sequence[Task]) -> Iterator[int]:
    if tasks and tasks[0].step == "manifest":
        raise KeyboardInterrupt
    return (task() for task in tasks)


def test_another_conversion_starts_anew(source: str, tmp_path: Path) -> None:
    target, said = str(tmp_path / "out" / "x.arrow"), list[str]()
    with pytest.raises(KeyboardInterrupt):
        convert("arrow", [source], target, run=lambda tasks: stop([Task(tasks[0].plan, "manifest", 0, "")]))
    convert("arrow", [source], target, limit=7, log=said.append)
    assert "removing an unfinished conversion" in said[0]
    with open_store(target) as store:
        assert store.count == 7
    assert sorted(os.listdir(tmp_path / "out")) == ["_singa", "x.arrow"]


def test_stopped_when_all_is_in_its_place(source: str, tmp_path: Path) -> None:
    target, mean = str(tmp_path / "out" / "x.arrow"), str(tmp_path / "out" / "mean.bin")
    with pytest.raises(KeyboardInterrupt):
        convert("arrow", [source], target, mean=mean, run=stop)
    convert("arrow", [source], target, mean=mean, run=stop_never)
    assert sorted(os.listdir(tmp_path / "out")) == ["_singa", "mean.bin", "x.arrow"]


def stop_never(tasks: Sequence[Task]) -> Iterator[int]:
    assert {task.step for task in tasks} <= {"manifest"}
    return (task() for task in tasks)


def test_a_directory_of_others_is_left_alone(source: str, tmp_path: Path) -> None:
    precious = tmp_path / ".x.arrow.convert" / "thesis.tex"
    precious.parent.mkdir()
    precious.touch()
    with pytest.raises(DataError, match=r"\.x\.arrow\.convert: the folder exists, but was not made by a conversion"):
        convert("arrow", [source], str(tmp_path / "x.arrow"))
    assert precious.exists()


def test_an_image_that_is_replaced_by_one_of_its_length(tmp_path: Path) -> None:
    folder, target, said = tmp_path / "images", str(tmp_path / "out" / "x.arrow"), list[str]()
    folder.mkdir()
    for i in range(4):
        Image.fromarray(np.full((4, 4), i, np.uint8)).save(folder / f"{i}.png", compress_level=0)

    def replace(value: int) -> None:
        length = (folder / "2.png").stat().st_size
        Image.fromarray(np.full((4, 4), value, np.uint8)).save(folder / "2.png", compress_level=0)
        assert (folder / "2.png").stat().st_size == length

    def stop_after_one(tasks: Sequence[Task]) -> Iterator[int]:
        yield tasks[0]()
        raise KeyboardInterrupt

    options: dict[str, Any] = {"shards": 4, "reading": {"channels": 1}}
    with pytest.raises(KeyboardInterrupt):
        convert("image-folder", [str(folder)], target, **options, run=stop_after_one)
    replace(77)
    convert("image-folder", [str(folder)], target, **options, log=said.append)
    why = f"removing an unfinished conversion, as {folder}/2.png has changed."
    assert said == [f"{tmp_path}/out/.x.arrow.convert: {why}"]
    shards = sorted(map(str, (tmp_path / "out").glob("*.arrow")))
    assert [int(read_all(open_store(shard))["pixel"].max()) for shard in shards] == [0, 1, 77, 3]

    def replace_meanwhile(tasks: Sequence[Task]) -> Iterator[int]:
        replace(88)
        return by_other_sessions(tasks)

    with pytest.raises(DataError, match=r"^.*/images/2\.png: the file changed during the conversion"):
        convert("image-folder", [str(folder)], target, **options, run=replace_meanwhile)


def test_sources_that_change_meanwhile(source: str, tmp_path: Path) -> None:
    def run(tasks: Sequence[Task]) -> Iterator[int]:
        written(tmp_path, "arrow", pixels(30, (4, 5)), "source")
        return by_other_sessions(tasks)

    with pytest.raises(DataError, match=r"source\.arrow: the file changed during the conversion"):
        convert("arrow", [source], str(tmp_path / "x.arrow"), run=run)
    assert not (tmp_path / "x.arrow").exists()


def test_a_remote_source_that_is_replaced_while_it_is_read(source: str, tmp_path: Path) -> None:
    url, data = f"memory://{uuid.uuid4().hex}/source.arrow", Path(source).read_bytes()
    fs.write_atomic(url, data)

    def run(tasks: Sequence[Task]) -> Iterator[int]:
        fs.write_atomic(url, data)
        return (task() for task in tasks)

    with pytest.raises(DataError, match=r"source\.arrow: the file was replaced while it was read"):
        convert("arrow", [url], str(tmp_path / "x.arrow"), run=run)
    assert not (tmp_path / "x.arrow").exists()


def by_other_sessions(tasks: Sequence[Task]) -> Iterator[int]:
    return (Task(task.plan, task.step, task.index, "elsewhere")() for task in tasks)


def test_the_mean_of_floats_does_not_depend_on_the_blocks(tmp_path: Path) -> None:
    records, means = floats(300, (7,)), []
    for i, block_bytes in enumerate((100, 1 << 20)):
        source = written(tmp_path, "arrow", records, f"s{i}", block_bytes=block_bytes)
        convert("arrow", [source], str(tmp_path / f"o{i}.arrow"), mean=str(tmp_path / f"mean{i}.bin"))
        means.append((tmp_path / f"mean{i}.bin").read_bytes())
    assert means[0] == means[1]
    with open_store(str(tmp_path / "mean0.bin")) as store:
        np.testing.assert_allclose(read_all(store)["data"][0], records["data"].mean(axis=0), rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("small")
def test_an_array_that_cannot_be_written_whole_names_the_file_and_the_cause(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(SingaError, match=r"/order: .*File too large$"):
            tasks.write_arrays(str(tmp_path / "order"), [np.arange(1000)], None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    arrays: list[Any] = [np.arange(6, dtype=np.int32).reshape(2, 3)[:, ::2], np.zeros((0, 2)), np.array(7, np.uint8)]
    tasks.write_arrays(str(tmp_path / "order"), arrays, None)
    assert (tmp_path / "order").read_bytes() == np.array([0, 2, 3, 5], np.int32).tobytes() + b"\7"


def test_a_target_that_is_not_local(source: str) -> None:
    target = "memory://converted/x.arrow"
    urls = convert("arrow", [source], target, shuffle=1, shards=2, verify=True)
    assert sorted(fs.ls("memory://converted")) == ["_singa", *(url.rpartition("/")[2] for url in urls)]
    with open_store("memory://converted/x-*.arrow") as store:
        assert store.count == 500
    fs.remove_tree("memory://converted")


def test_a_set_is_converted_as_a_whole(source: str, tmp_path: Path) -> None:
    convert("arrow", [source], str(tmp_path / "s.arrow"), shards=3)
    convert("arrow", [str(tmp_path / "s-*.arrow")], str(tmp_path / "one.parquet"), verify=True)
    with open_store(source) as first, open_store(str(tmp_path / "one.parquet")) as second:
        assert_same(read_all(first), read_all(second))


def test_records_with_nan_are_verified(tmp_path: Path) -> None:
    values = np.float32([[0, np.nan, 1], [np.nan, 2, np.inf]])
    np.savez(tmp_path / "x.npz", x=values, y=[0, 1])
    convert("npz", [str(tmp_path / "x.npz")], str(tmp_path / "x.arrow"), verify=True)
    with open_store(str(tmp_path / "x.arrow")) as store:
        assert read_all(store)["data"].tobytes() == values.tobytes()


def test_all_sources_are_closed_at_the_end(source: str, tmp_path: Path, small: None) -> None:
    convert("arrow", [source], str(tmp_path / "x.arrow"), shuffle=1, run=by_threads)
    assert tasks._KEPT == {}


def test_a_bucket_is_one_read_of_each_run(source: str, tmp_path: Path, small: None, monkeypatch: Any) -> None:
    reads = []

    def read(url: str, offset: int = 0, length: int | None = None, storage_options: fs.Options = None) -> bytes:
        reads.append(posixpath.basename(url)[:7])
        return read_bytes(url, offset, length, storage_options)

    read_bytes = fs.read_bytes
    monkeypatch.setattr(fs, "read_bytes", read)
    convert("arrow", [source], str(tmp_path / "x.arrow"), shuffle=1, shards=2)
    n_runs = -(-500 * 24 // 1500)
    n_buckets = 2 * -(-250 // (1500 // 24))
    # and the starts of its buckets once for each shard
    assert reads.count("scatter") <= n_runs * (n_buckets + 2)


def test_large_sources_have_larger_runs() -> None:
    sizes = [convert_plan._run_bytes(total) >> 20 for total in (1 << 30, 1 << 32, 1 << 36, 1 << 40)]
    assert sizes == [64, 64, 256, 512]


def test_no_image_is_decoded_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = pixels(40, (3, 4, 5))
    records["label"] = np.arange(40, dtype=np.int32) // 20
    decoded = []

    def decode(data: bytes, where: str, *options: Any) -> Any:
        decoded.append(where)
        return decode_image(data, where, *options)

    decode_image = image.decode_image
    monkeypatch.setattr(image, "decode_image", decode)
    url = write_foreign(tmp_path, "image-folder", records)
    for i, direct in enumerate((1 << 28, 100)):
        monkeypatch.setattr(convert_plan, "DIRECT_BYTES", direct)
        decoded.clear()
        convert("image-folder", [url], str(tmp_path / f"{i}-{{split}}.arrow"), shuffle=1, split={"a": 0.7, "b": 0.3})
        # the first one once more, for the shape
        assert len(decoded) == 41
        assert len(set(decoded)) == 40
    for name in ("a", "b"):
        assert (tmp_path / f"0-{name}.arrow").read_bytes() == (tmp_path / f"1-{name}.arrow").read_bytes()
