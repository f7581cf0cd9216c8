"""Checkpoints that are damaged, or never finished: the newest good one is found, or an error says what is wrong."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from singa_dask import fs
from singa_dask.errors import CheckpointError, DataError
from singa_dask.runtime.checkpoints import lookup
from singa_dask.runtime.checkpoints.author import Author, write_file
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint, step_url
from singa_dask.runtime.checkpoints.layer_states import LayerState, write_states
from singa_dask.runtime.checkpoints.lookup import find, load_manifest, load_values
from tests.runtime.checkpoints.test_checkpoint import SHAPES, flip, stored_values, write


def write_whole(directory: str, step: int, **more: Any) -> str:
    """Write a checkpoint of two servers and a worker with layer states; its values tell the step."""
    state = LayerState("train", "gru", [[2, 3]], (np.full((2, 3), step, np.float32),), (False,))
    save = partial(write_file, step_url(directory, step), author=Author(incarnation=more.get("incarnation", 0)))
    states = [write_states(save, 0, 0, [state])]
    return write(directory, step, values=stored_values(seed=step), states=states, workers=1, **more)


def check_whole(url: str) -> int:
    """Check that a checkpoint has all of its values; return its step."""
    found = Checkpoint(url)
    wanted = stored_values(seed=found.step)
    for name in SHAPES:
        for what, array in wanted[name].items():
            whole = found.whole(name, what)
            assert whole is not None
            assert whole.tobytes() == array.tobytes()
    for part in found.manifest["states"]:
        (values,) = found.tensors(part["file"]).values()
        assert (values.view(np.float32) == found.step).all()
    return found.step


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the warnings of the lookup."""
    said: list[str] = []
    monkeypatch.setattr(lookup.logger, "warning", lambda text, *values: said.append(text % values))
    return said


FILES = ["manifest.json", "part-0-of-2.safetensors", "part-1-of-2.safetensors", "states-0-0.safetensors"]
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "flip": flip,
    "truncate": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "missing": lambda content: None,
}


def damage(url: str, file: str, how: str) -> None:
    path = Path(url) / file
    content = DAMAGES[how](path.read_bytes())
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_an_older_good_one_is_taken_with_a_warning(tmp_path: Path, warnings: list[str], file: str, how: str) -> None:
    places = [write_whole(str(tmp_path / "checkpoint"), step) for step in (3, 20, 100)]
    damage(places[2], file, how)
    found = find(str(tmp_path))
    assert found == places[1]
    assert check_whole(found) == 20
    if file == FILES[0] and how == "missing":  # it was never complete
        assert not warnings
        return
    (warning,) = warnings
    assert f"step-100/{file}: " in warning
    assert warning.endswith(f"Using an older checkpoint instead: {places[1]}")
    if how == "missing":
        assert "cannot be read" in warning
    else:
        assert "damaged" in warning


def test_values_and_class_names_go_back_too(tmp_path: Path, warnings: list[str]) -> None:
    places = [write_whole(str(tmp_path / "checkpoint"), step, class_names={"data": [str(step)]}) for step in (3, 20)]
    damage(places[1], FILES[1], "flip")
    np.testing.assert_array_equal(load_values(str(tmp_path))["w"].values, stored_values(seed=3)["w"]["value"])
    damage(places[1], FILES[0], "truncate")
    assert load_manifest(str(tmp_path))["class_names"] == {"data": ["3"]}
    np.testing.assert_array_equal(load_values(str(tmp_path.parent / tmp_path.name))["w"].values.shape, SHAPES["w"])
    assert len(warnings) == 3


def test_an_error_lists_what_is_wrong_with_each(tmp_path: Path) -> None:
    places = [write_whole(str(tmp_path / "checkpoint"), step) for step in (3, 20, 100)]
    for place, file, how in zip(places, FILES[1:], ("flip", "missing", "truncate"), strict=True):
        damage(place, file, how)
    with pytest.raises(CheckpointError) as caught:
        find(str(tmp_path))
    first, *others = str(caught.value).splitlines()
    assert first == f"{tmp_path}: no checkpoint here is usable."
    for line, step, file, what in zip(
        others, (100, 20, 3), reversed(FILES[1:]), ("damaged", "cannot be read", "damaged"), strict=True
    ):
        assert line.startswith(f"{tmp_path}/checkpoint/step-{step}/{file}: {what}")


def test_a_step_that_was_named_is_not_replaced(tmp_path: Path, warnings: list[str]) -> None:
    places = [write_whole(str(tmp_path / "checkpoint"), step) for step in (3, 7, 20, 100)]
    damage(places[2], FILES[1], "flip")
    damage(places[1], FILES[2], "flip")
    with pytest.raises(CheckpointError, match=rf"damaged.*Usable older checkpoints: {places[0]}\.$"):
        find(places[2])
    with pytest.raises(CheckpointError, match=r"damaged.*Usable older checkpoints"):
        load_values(places[2])
    damage(places[0], FILES[0], "flip")
    with pytest.raises(CheckpointError, match=r"damaged.*No older checkpoint is usable\.$"):
        find(places[2])
    assert not warnings


def test_what_cannot_be_read_just_now_is_not_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (3, 20):
        write_whole(str(tmp_path / "checkpoint"), step)
    real = fs.read_bytes

    def read(url: str, *args: Any, **given: Any) -> bytes:
        if url.endswith("step-20/part-1-of-2.safetensors"):
            with fs.errors_name(url):
                raise OSError(errno.EIO, "Input/output error")
        return real(url, *args, **given)

    monkeypatch.setattr(fs, "read_bytes", read)
    with pytest.raises(CheckpointError, match=r"step-20/part-1-of-2.*cannot be read.*Input/output error"):
        find(str(tmp_path))


def test_every_flipped_byte_of_a_checkpoint_is_found(tmp_path: Path) -> None:
    older, newer = (write_whole(str(tmp_path / "checkpoint"), step) for step in (3, 20))
    random = Random(0)
    for file in FILES:
        path = Path(newer) / file
        content = path.read_bytes()
        for _ in range(40):
            place = random.randrange(len(content))
            path.write_bytes(
                content[:place] + bytes([content[place] ^ 1 << random.randrange(8)]) + content[place + 1 :]
            )
            assert find(str(tmp_path)) == older
        path.write_bytes(content)
    assert find(str(tmp_path)) == newer


# -- a writer that is killed at any point -------------------------------------------------------------------------


class Killed(BaseException):
    """Ends a writer as a kill does: nothing after it is done."""


class MortalFileSystem(MemoryFileSystem):
    """Files in memory; before its n-th operation that changes something, or amid it, the writer is killed."""

    protocol = "mortal"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False
    left = -1
    part: float | None = None
    error: BaseException | None = None

    @classmethod
    def count(cls) -> bool:
        """Return whether this is the operation at which the writer ends."""
        if cls.left == 0 and cls.error is not None:
            return True
        cls.left -= 1
        return False

    def put_file(self, lpath: str, rpath: str, **given: Any) -> None:
        ends = self.count()
        content = Path(lpath).read_bytes()
        if ends and self.part is None:
            raise self.error  # type: ignore[misc]
        self.pipe_file(rpath, content[: int(len(content) * self.part)] if ends and self.part is not None else content)
        if ends:
            raise self.error  # type: ignore[misc]

    def mv(self, path1: str, path2: str, **given: Any) -> None:
        ends = self.count()
        if ends and not self.part:
            raise self.error  # type: ignore[misc]
        content = self.cat_file(path1)
        self.pipe_file(path2, content)  # as a rename does: whole or not at all
        self.rm_file(path1)
        if ends:
            raise self.error  # type: ignore[misc]


@pytest.fixture
def mortal() -> Iterator[type[MortalFileSystem]]:
    """Return a filesystem ``mortal://`` whose writer can be killed."""
    fsspec.register_implementation("mortal", MortalFileSystem, clobber=True)
    yield MortalFileSystem
    MortalFileSystem.store.clear()
    MortalFileSystem.left, MortalFileSystem.error = -1, None


PLACES = [None, 0.0, *[Random(1).random() for _ in range(22)], 1.0]


@pytest.mark.long
def test_a_writer_killed_at_any_point_leaves_a_whole_checkpoint(mortal: type[MortalFileSystem]) -> None:
    """At each operation, before it, after it and after some of its bytes: 8 operations, 25 ways."""
    steps = set()
    for operation in range(9):
        for part in PLACES:
            mortal.store.clear()
            mortal.left, mortal.error, mortal.part = -1, None, None
            older = write_whole("mortal://run/checkpoint", 3)
            mortal.left, mortal.error, mortal.part = operation, Killed(), part
            try:
                write_whole("mortal://run/checkpoint", 20)
                assert operation == 8
            except Killed:
                assert operation < 8
            mortal.error = None
            found = find("mortal://run")
            assert found == older or operation >= 7
            step = check_whole(found)
            steps.add(step)
            # and the same step is written whole by the next incarnation, over what the first one has left
            write_whole("mortal://run/checkpoint", 20, incarnation=1)
            assert check_whole(find("mortal://run")) == 20
    assert steps == {3, 20}


def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_the_older_one(mortal: type[MortalFileSystem]) -> None:
    older = write_whole("mortal://run/checkpoint", 3)
    for operation in range(8):
        mortal.left, mortal.error, mortal.part = operation, OSError(errno.ENOSPC, "No space left on device"), 0.5
        with pytest.raises(DataError, match=r"mortal://run/checkpoint/step-20/.*No space left on device"):
            write_whole("mortal://run/checkpoint", 20)
        mortal.error = None
        if operation < 7:
            assert find("mortal://run") == older


def test_a_part_of_an_older_incarnation_written_late_changes_nothing(mortal: type[MortalFileSystem]) -> None:
    url = write_whole("mortal://run/checkpoint", 20, incarnation=2)
    before = {file: fs.read_bytes(f"{url}/{file}") for file in fs.ls(url)}
    for incarnation in (0, 1):
        mortal.left, mortal.error, mortal.part = 6, Killed(), None  # all but the manifest
        with pytest.raises(Killed):
            write_whole("mortal://run/checkpoint", 20, incarnation=incarnation)
        mortal.error = None
    assert {file: fs.read_bytes(f"{url}/{file}") for file in before} == before
    assert check_whole(find("mortal://run")) == 20
