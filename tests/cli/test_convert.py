"""``convert``: files become stores, and what makes no sense is refused."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from pathlib import Path

import numpy as np
import pytest

from singa_dask.data.stores import open_store
from tests.cli.conftest import Call
from tests.contracts.foreign import png
from tests.runtime.processes import program


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Return an npz file of 20 records with 2 labels."""
    path = tmp_path / "digits.npz"
    images = np.arange(20 * 4, dtype=np.uint8).reshape(20, 2, 2)
    np.savez(path, images=images, labels=np.arange(20, dtype=np.uint8) % 2)
    return path


def test_npz_to_arrow(call: Call, digits: Path, tmp_path: Path) -> None:
    result = call("convert", "npz", digits, tmp_path / "out.arrow")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert result.stderr == f"{tmp_path}/out.arrow: 20 records\n"
    store = open_store(str(tmp_path / "out.arrow"))
    assert store.count == 20
    store.close()


def test_split(call: Call, digits: Path, tmp_path: Path) -> None:
    target = tmp_path / "{split}.arrow"
    result = call("convert", "npz", digits, target, "--split", "train=0.8,test=0.2", "--shuffle", 1, "--limit", 10)
    assert result.exit_code == 0, result.output
    assert result.stderr == f"{tmp_path}/train.arrow: 8 records\n{tmp_path}/test.arrow: 2 records\n"


def test_csv(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;2;3;4\n5;6;7;8\n")
    options = ("--separator", ";", "--no-label", "--shape", "2,2")
    result = call("convert", "csv", tmp_path / "a.csv", tmp_path / "out.arrow", *options)
    assert result.exit_code == 0, result.output
    store = open_store(str(tmp_path / "out.arrow"))
    assert store.read_block(0)["data"].shape == (2, 2, 2)
    store.close()


def test_images_in_shards_with_a_look_at_them(call: Call, tmp_path: Path) -> None:
    for i in range(4):
        path = tmp_path / "images" / f"class-{i % 2}" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(np.full((3, 4 + i, 6), i, np.uint8)))
    options = ("--resize", "4x6", "--channels", 1, "--shards", 2, "--verify", "--mean", tmp_path / "mean.bin")
    result = call("convert", "image-folder", tmp_path / "images", tmp_path / "out.parquet", *options)
    assert result.exit_code == 0, result.output
    names = ["out-00000-of-00002.parquet", "out-00001-of-00002.parquet"]
    assert result.stderr == "".join(f"{tmp_path}/{name}: 2 records\n" for name in names)
    with open_store(str(tmp_path / "out-*.parquet")) as store:
        assert (store.count, store.schema["pixel"].shape) == (4, (1, 4, 6))


def test_text(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcabc")
    options = ("--vocabulary", tmp_path / "vocab.txt", "--window", 3)
    result = call("convert", "text", tmp_path / "a.txt", tmp_path / "out.arrow", *options)
    assert result.exit_code == 0, result.output
    with open_store(str(tmp_path / "out.arrow")) as store:
        assert store.read_block(0)["pixel"].tolist() == [[0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize("kind", ["text", "words"])
def test_a_vocabulary_lies_beside_what_needs_it(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("to be or\nnot to be\n" * 10)
    (tmp_path / "out").mkdir()
    options = ("--window", 300) if kind == "text" else ("--class-size", 300)
    assert call("convert", kind, "a.txt", "out/a.arrow", *options).exit_code == 1
    assert not [*(tmp_path / "out").iterdir()]
    options = ("--window", 3) if kind == "text" else ("--class-size", 2)
    for part, made in (("a", "created from this text"), ("b", "unchanged")):
        result = call("convert", kind, "a.txt", f"out/{part}.arrow", *options)
        assert result.exit_code == 0, result.output
        assert result.stderr.startswith(f"{tmp_path}/out/vocab.txt: the vocabulary, {made}\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "out"]


def test_a_vocabulary_that_lacks_a_character(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcabc")
    (tmp_path / "vocab.txt").write_text("ab")
    result = call("convert", "text", tmp_path / "a.txt", tmp_path / "a.arrow", "--window", 2)
    said = f"{tmp_path}/a.txt:1:3: character 'c' is not in the vocabulary {tmp_path}/vocab.txt. Pass another file"
    assert (result.exit_code, result.stderr.startswith(said)) == (1, True), result.stderr


# -- what is there already -----------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--split", "a=0.5,b=0.5"], ["--mean"]])
def test_nothing_is_replaced_unasked(call: Call, digits: Path, tmp_path: Path, more: list[str]) -> None:
    options = [*more, *([tmp_path / "out-a.arrow"] if more == ["--mean"] else [])]
    there = tmp_path / ("out-a.arrow" if more else "out.arrow")
    there.write_text("mine")
    command = ["convert", "npz", digits, tmp_path / "out.arrow", *options]
    result = call(*command)
    assert result.exit_code == 2
    said = f"{there}: exists already. Expected a new DST. Pass --overwrite to replace it.\n"
    assert result.stderr == said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.npz", there.name]
    assert there.read_text() == "mine"
    result = call(*command, "--overwrite")
    assert result.exit_code == 0, result.output
    assert there.read_bytes().startswith(b"ARROW1")


@pytest.mark.parametrize("link", [False, True])
def test_a_source_is_not_replaced(call: Call, digits: Path, tmp_path: Path, link: bool) -> None:
    content, out = digits.read_bytes(), digits
    if link:
        out = tmp_path / "link.npz"
        out.symlink_to(digits)
    result = call("convert", "npz", digits, out, "--to", "arrow", "--overwrite")
    assert result.exit_code == 2
    assert "this file is an input" in result.stderr
    assert digits.read_bytes() == content
    assert not list(tmp_path.glob(".*"))


def test_a_job_file_is_not_replaced_unasked(call: Call, job: Path, tmp_path: Path) -> None:
    command = ["convert", "conf", job, tmp_path / "out.yaml"]
    assert call(*command).exit_code == 0
    result = call(*command)
    assert (result.exit_code, result.stderr) == (
        2,
        f"{tmp_path}/out.yaml: exists already. Expected a new DST. Pass --overwrite to replace it.\n",
    )
    assert call(*command, "--overwrite").exit_code == 0
    assert "this file is an input" in call("convert", "conf", job, job, "--overwrite").stderr


@pytest.mark.long
@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_a_person_is_asked(digits: Path, tmp_path: Path, answer: str, code: int) -> None:
    there = [tmp_path / "a.arrow", tmp_path / "b.arrow"]
    for path in there:
        path.write_text("mine")
    command = program("convert", "npz", str(digits), str(tmp_path / "{split}.arrow"), "--split", "a=0.5,b=0.5")
    ended, said = on_terminal(command, answer)
    assert ended == code
    assert f"{there[0]} and 1 more: exist already. Replace? [y/N]:" in said
    assert [path.read_bytes()[:4] for path in there] == [b"mine" if code else b"ARRO"] * 2


def on_terminal(command: list[str], answer: str) -> tuple[int, str]:
    """Run a command on a terminal, and answer its question; return its exit code and what it showed."""
    terminal, its_side = pty.openpty()
    with subprocess.Popen(command, stdin=its_side, stdout=its_side, stderr=its_side) as process:
        os.close(its_side)
        said = b""
        # the end of a terminal is an error
        with contextlib.suppress(OSError):
            while part := os.read(terminal, 4096):
                said += part
                if part.endswith(b"[y/N]: "):
                    os.write(terminal, f"{answer}\n".encode())
    os.close(terminal)
    return process.returncode, said.decode()


def test_words(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("to be or\nnot to be\n")
    options = ("--vocabulary", tmp_path / "vocab.txt", "--class-size", 2, "--quiet")
    result = call("convert", "words", tmp_path / "a.txt", tmp_path / "out.bin", *options)
    assert (result.exit_code, result.output) == (0, "")
    with open_store(str(tmp_path / "out.bin")) as store:
        assert store.read_block(0)["data"][:, 0].tolist() == [1, 2, 3, 0, 4, 1, 2, 0]


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["nzp", "a", "b.arrow"], 2, "unknown kind of source 'nzp'. Did you mean 'npz'?"),
        (["npz", "missing.npz", "b.arrow"], 1, "missing.npz: no such file"),
        (["npz", "a", "b.arrow", "--split", "train"], 2, "expected name=share"),
        (["npz", "a", "b.arrow", "--shape", "2,2"], 2, "unknown option 'shape' of sources of kind npz"),
        (["csv", "a", "b.arrow", "--shape", "2,x"], 2, "expected numbers, e.g. 3,32,32"),
        (["image-folder", "a", "b.arrow", "--resize", "32"], 2, "--resize '32': expected numbers, e.g. 32x32"),
        (["idx", "a", "b.arrow", "--resize", "3x2"], 2, "unknown option 'resize' of sources of kind idx"),
        (["image-folder", "a", "b.arrow", "--resize", "0x32"], 2, "--resize '0x32': expected numbers from 1 on"),
        (["nzp", "a", "b"], 2, "unknown kind of source 'nzp'."),
        (["npz", "a", "b"], 2, "by the suffix. Pass it (--to). Known: arrow, csv, kvfile, lmdb, npz, parquet"),
        (["npz", "a", "b.arrow", "--split", "a=2,b=3"], 2, "split 'a=2,b=3': shares must be above 0"),
        (["npz", "a"], 2, "Missing argument"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Call, args: list[str], code: int, said: str) -> None:
    result = call("convert", *args)
    assert result.exit_code == code
    assert said in result.stderr
    assert "Traceback" not in result.stderr
