"""Quotes that are characters of a text: read as such with `quotes`, and refused where they could join records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.data.stores.tables.table_store import TableStore
from singa_dask.errors import DataError
from tests.contracts.records import read_all

TSV: dict[str, Any] = {"separator": "\t", "features": "x", "label": "text", "categories": {"text": []}}


def texts(file: Path, content: str, **options: Any) -> list[str]:
    """Return the texts of a table, by the numbers of their classes."""
    file.write_bytes(f"x\ttext\n{content}".encode())
    with TableStore(str(file), **TSV, **options) as store:
        return [store.class_names[label] for label in read_all(store)["label"]]


JOINED = {
    "between two records": '1\t"hello\n2\tfoo\n3\tbar"\n4\tbye\n',
    "before a text": '1\tfoo\n2\t"hello\n3\t"bar\n4\tbye\n',
    "not closed": '1\tfoo\n2\thello\n3\t"bye\n',
    "within texts": '1\t5" pipe\n2\t6" pipe\n',
}


@pytest.mark.parametrize("content", JOINED.values(), ids=JOINED)
def test_quotes_that_would_join_records_are_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line [2-4](, column .*)?: .*quotes: false"):
        texts(tmp_path / "x.tsv", content)


WORDS = st.text(st.sampled_from('a "\\'), min_size=1, max_size=6).map(str.strip).filter(bool)


@given(st.lists(WORDS, min_size=2, max_size=6))
def test_quotes_are_characters_if_a_job_says_so(tmp_path_factory: pytest.TempPathFactory, found: list[str]) -> None:
    content = "".join(f"{i}\t{text}\n" for i, text in enumerate(found))
    file = tmp_path_factory.mktemp("quotes") / "x.tsv"
    assert texts(file, content, quotes=False) == found
    assert texts(file, content.replace("\t", " \t "), quotes=False, block_bytes=8) == found


def test_texts_of_several_lines(tmp_path: Path) -> None:
    good = '1\t"one\nline\ttwo"\n2\t"a ""b\n\tc"" d"\n3\t"two\nlines"\n'
    assert texts(tmp_path / "x.tsv", good) == ["one\nline\ttwo", 'a "b\n\tc" d', "two\nlines"]
    # each line of it could be a record
    assert texts(tmp_path / "x.tsv", '1\t"a\n2\tb"\n3\tc\n', quotes=True) == ["a\n2\tb", "c"]


def test_tables_of_hive(tmp_path: Path) -> None:
    (tmp_path / "000000_0").write_text('1\x01a"b\n\\N\x01"c\n3\x01\\N\n4\x01a"b\n')
    reading: dict[str, Any] = {"separator": "\x01", "header": False, "format": "csv", "quotes": False}
    with TableStore(str(tmp_path / "000000_0"), features="1", label="2", missing="skip", **reading) as store:
        assert store.class_names == ('a"b',)
        assert read_all(store)["data"][:, 0].tolist() == [1, 4]
