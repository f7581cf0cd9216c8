"""Small text files: marks, encodings and line ends, in one function and by those that read such files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data.stores import open_store
from singa_dask.data.stores.texts.vocabulary import read_words
from singa_dask.errors import ConfigError, DataError
from singa_dask.exports.importing import read_map
from singa_dask.jobs.job import load
from singa_dask.survey.csv_head import head_lines
from singa_dask.texts import decode, split_lines
from tests.contracts.foreign import png, tar
from tests.contracts.records import read_all

CHARSETS = ["utf-8-sig", "utf-16", "utf-32"]
ODD = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@given(st.text(st.sampled_from("ab\r\n" + ODD)))
def test_lines_are_those_of_universal_newlines(text: str) -> None:
    opened = io.StringIO(text, newline=None)
    assert split_lines(text) == [line.removesuffix("\n") for line in opened]


@given(st.text().filter(lambda text: text[:1] not in ("\ufeff", "\0")), st.sampled_from(["utf-8", *CHARSETS]))
def test_a_mark_is_not_part_of_the_text(text: str, charset: str) -> None:
    assert decode(text.encode(charset), "x") == text


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_error_names_line_and_byte(end: str) -> None:
    with pytest.raises(DataError, match=r"^x, line 3: the text is not UTF-8: byte \d+ is 0xe9\.$"):
        decode(f"a\u2028a{end}b{end}".encode() + b"caf\xe9", "x")
    with pytest.raises(DataError, match=r"^x, line 2: the text is not UTF-16-LE: byte 6 is 0x00\.$"):
        decode("\ufeffa\n".encode("utf-16-le") + b"\x00", "x")


@pytest.mark.parametrize("charset", CHARSETS)
def test_all_that_read_small_files_read_them_alike(charset: str, tmp_path: Path) -> None:
    pixels = np.zeros((3, 4, 4), np.uint8)
    (tmp_path / "a\u2028.png").write_bytes(png(pixels))

    def write(name: str, text: str) -> str:
        (tmp_path / name).write_bytes(text.encode(charset))
        return str(tmp_path / name)

    images = write("list.txt", "a\u2028.png ant\x0cbee\ra\u2028.png cat\r\n")
    classes = write("classes.txt", "ant\x0cbee\r\ncat\r\n")
    with open_store(images, "image-list", classes=classes) as store:
        assert store.class_names == ("ant\x0cbee", "cat")
        assert read_all(store)["label"].tolist() == [0, 1]
    with open_store(images, "image-list") as store:
        assert store.class_names == ("ant\x0cbee", "cat")
    assert head_lines(images) == ["a\u2028.png ant\x0cbee", "a\u2028.png cat"]
    write("batches.meta.txt", "pick-up truck\r\ncat\r\n\r\n")
    (tmp_path / "x.bin").write_bytes(bytes(3073))
    with open_store(str(tmp_path / "x.bin"), "cifar") as store:
        assert store.class_names == ("pick-up truck", "cat")
    (tmp_path / "x.tar").write_bytes(tar([("0.png", png(pixels)), ("0.cls", "cat\r\n".encode(charset))]))
    with open_store(str(tmp_path / "x.tar"), classes=["ant", "cat"]) as store:
        assert read_all(store)["label"].tolist() == [1]
    text, words = write("text.txt", "b\u2028 a"), write("words.txt", "</s> 0\r\na 2\r\nb\u2028 1\r\n")
    assert read_words([text], vocabulary=words, class_size=1)["data"][:, 0].tolist() == [2, 1]
    assert read_map(write("map.yaml", "a: b\r\n")) == {"a": "b"}
    job = Path("configs/digits/mlp.yaml").read_text()
    assert load(write("job.yaml", job)).name == load("configs/digits/mlp.yaml").name


def test_files_in_other_encodings_are_refused_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_bytes(b"ant\ncaf\xe9 1\n")
    for options in ({}, {"classes": str(file)}):
        with pytest.raises(DataError, match=r"x\.txt, line 2: the text is not UTF-8: byte 7 is 0xe9"):
            open_store(str(file), "image-list", **options)
    with pytest.raises(ConfigError, match=r"x\.txt:2:4: this byte is not UTF-8"):
        load(str(file))
    (tmp_path / "x.tar").write_bytes(tar([("0.png", png(np.zeros((3, 4, 4), np.uint8))), ("0.cls", b"caf\xe9")]))
    with pytest.raises(DataError, match=r"record 0, \.cls, line 1: the text is not UTF-8"):
        open_store(str(tmp_path / "x.tar"), classes=["café"])
