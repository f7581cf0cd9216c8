"""A directory belongs to the newest of its owners; what an older one would write is refused at the last moment."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from singa_dask import fs
from singa_dask.errors import ReplacedError, TakenOverError
from singa_dask.fs.ownership import Ownership
from tests.fs.s3_server import s3_server


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "s3":
        with s3_server() as server:
            monkeypatch.setitem(fsspec.config.conf, "s3", server.options)
            yield "s3://lab/run"
    else:
        yield str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}"


@pytest.mark.parametrize(
    ("before", "after"), [(("job", 1), ("job", 2)), (("job", 9), ("another", 0)), (("b", 0), ("a", 0))]
)
def test_the_newer_owner_has_the_directory(url: str, before: tuple[str, int], after: tuple[str, int]) -> None:
    sleeper, newer = Ownership(url, *before), Ownership(url, *after)
    sleeper.take()
    taken = fs.read_bytes(f"{url}/owner.json")
    sleeper.check()
    assert fs.read_bytes(f"{url}/owner.json") == taken
    newer.take()
    with pytest.raises(TakenOverError, match=r"another process writes there now \(process \d+ on ") as caught:
        sleeper.check()
    assert isinstance(caught.value, ReplacedError) == (before[0] == after[0])
    newer.check()


def test_one_that_was_replaced_before_it_began_takes_nothing(url: str) -> None:
    sleeper, newer = Ownership(url, "job", 1), Ownership(url, "job", 2)
    newer.take()
    with pytest.raises(TakenOverError):
        sleeper.take()
    newer.check()


def test_one_that_falls_asleep_while_it_takes_a_directory_has_it_no_longer(url: str) -> None:
    sleeper, newer = Ownership(url, "job", 1), Ownership(url, "job", 2)
    newer.take()
    fs.remove_tree(f"{url}/owner.json")
    sleeper.take()  # it had looked before that
    newer.check()
    with pytest.raises(TakenOverError):
        sleeper.check()


def test_processes_that_own_a_directory_together_may_write_whoever_records(url: str) -> None:
    unit, stranger = Ownership(url, "job"), Ownership(url, "another")
    for epoch in (1, 2):
        Ownership(url, "job", epoch).take()
        unit.check()
        with pytest.raises(TakenOverError):
            stranger.check()


@pytest.mark.parametrize("content", [None, b"", b"[1]\n"])
def test_a_directory_whose_owner_is_not_known_is_anybodys(url: str, content: bytes | None) -> None:
    if content is not None:
        fs.write_atomic(f"{url}/owner.json", content)
    owner = Ownership(url, "job", 1)
    owner.check()
    owner.take()
    owner.check()


@pytest.mark.parametrize("url", ["local", "memory", "s3"], indirect=True)
def test_an_owner_that_falls_asleep_in_a_write_changes_nothing(url: str) -> None:
    sleeper, newer, file = Ownership(url, "job", 1), Ownership(url, "job", 2), f"{url}/metrics.jsonl"
    sleeper.take()

    def wake() -> None:
        # its content is complete, and only has to take its place; on S3 that is one request
        assert len(fs.ls(url)) == 2 or url.startswith("s3:")
        newer.take()
        fs.write_atomic(file, b"all of it", check=newer.check)
        sleeper.check()

    with pytest.raises(TakenOverError):
        fs.write_atomic(file, b"stale", check=wake)
    assert fs.read_bytes(file) == b"all of it"
    assert fs.ls(url) == ["metrics.jsonl", "owner.json"]


@pytest.mark.parametrize("url", ["s3"], indirect=True)
@pytest.mark.parametrize("before", [None, b"some of it"])
def test_an_owner_that_falls_asleep_in_the_last_request_changes_nothing(url: str, before: bytes | None) -> None:
    """Nothing can be looked at after that: the store compares what is there."""
    sleeper, newer, file, n = Ownership(url, "job", 1), Ownership(url, "job", 2), f"{url}/metrics.jsonl", 0
    sleeper.take()
    if before is not None:
        fs.write_atomic(file, before, check=sleeper.check)

    def sleep() -> None:
        nonlocal n
        n += 1
        sleeper.check()
        if n == 1:
            newer.take()
            fs.write_atomic(file, b"all of it", check=newer.check)

    with pytest.raises(TakenOverError):
        fs.write_atomic(file, b"stale", check=sleep)
    assert fs.read_bytes(file) == b"all of it"


@pytest.mark.parametrize("url", ["s3"], indirect=True)
def test_an_object_that_somebody_else_changes_is_written_by_its_owner(url: str) -> None:
    """As by a request whose answer was lost, and which was made again."""
    file, n = f"{url}/metrics.jsonl", 0

    def change() -> None:
        nonlocal n
        n += 1
        if n == 1:
            fs.write_atomic(file, b"another")

    fs.write_atomic(file, b"right", check=change)
    assert fs.read_bytes(file) == b"right"


def test_a_store_without_conditions_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as server:
        monkeypatch.setitem(fsspec.config.conf, "s3", server.options)
        server.has_conditions = False
        sleeper, newer, file = (Ownership("s3://lab/run", "job", 1), Ownership("s3://lab/run", "job", 2),
                                "s3://lab/run/metrics.jsonl")  # fmt: skip
        sleeper.take()
        for content in (b"some of it", b"all of it"):
            fs.write_atomic(file, content, check=sleeper.check)
        newer.take()
        with pytest.raises(TakenOverError):
            fs.write_atomic(file, b"stale", check=sleeper.check)
        assert fs.read_bytes(file) == b"all of it"
