"""Directories of part files: what is written whole, who holds it, and what dead processes have left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from singa_dask.fs.part_folders import PartFolders

DIES = """
import sys
from pathlib import Path
from singa_dask.fs.part_folders import PartFolders
folders = PartFolders(Path(sys.argv[1]))
assert folders.hold("dead")
folders.write("dead", "a.arrow", lambda path: path.write_bytes(b"abc"))
"""


@pytest.fixture
def folders(tmp_path: Path) -> PartFolders:
    return PartFolders(tmp_path / "parts")


def test_files_are_written_whole_and_read_by_ranges(folders: PartFolders) -> None:
    path, n = folders.write("t", "a.arrow", lambda path: path.write_bytes(b"abcdef"))
    assert (path, n) == (folders.root / "t" / "a.arrow", 6)
    assert [folders.read("t", "a.arrow", *each) for each in ((0, 6), (2, 3), (5, 9))] == [b"abcdef", b"cde", b"f"]
    with pytest.raises(FileNotFoundError):
        folders.read("t", "b.arrow", 0, 1)

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        folders.write("t", "b.arrow", fail)
    assert folders.write("t", "empty.arrow", lambda path: None)[1] is None
    assert [each.name for each in path.parent.iterdir()] == ["a.arrow"]


@pytest.mark.parametrize("token", ["..", ".", "", "a/b", "/etc", ".hidden", "holders", "a\0"])
def test_no_name_leads_elsewhere(folders: PartFolders, token: str) -> None:
    for pair in ((token, "a"), ("a", token)):
        with pytest.raises(ValueError, match="is not a valid name of a part file"):
            folders.read(*pair, 0, 1)


def test_what_no_living_process_holds_is_deleted(folders: PartFolders) -> None:
    assert folders.hold("mine")
    assert not folders.hold("mine")
    folders.write("mine", "a.arrow", lambda path: path.write_bytes(b"abc"))
    folders.write("live", "a.arrow", lambda path: path.write_bytes(b"abc"))
    subprocess.run([sys.executable, "-c", DIES, str(folders.root)], check=True)
    assert folders.sweep(live=["live"]) == ["dead"]
    assert sorted(each.name for each in folders.root.iterdir()) == ["holders", "live", "mine"]
    assert len(list((folders.root / "holders").iterdir())) == 1
    folders.drop("mine")
    assert folders.sweep() == ["live"]
    assert [each.name for each in folders.root.rglob("*")] == ["holders"]
