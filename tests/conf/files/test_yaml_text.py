"""YAML: scalars of version 1.2, places, what a job may not have, and back to text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singa_dask.conf.files.tree import locate, plain
from singa_dask.conf.files.yaml_text import dump, parse
from singa_dask.errors import ConfigError
from tests.selection import few_examples


def read(text: str) -> Any:
    node, problems = parse(text, "f.yaml")
    assert node is not None and problems == []
    return plain(node)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("-1E+3", -1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-.inf", -float("inf")),
        ("007", 7),
        ("0o17", 15),
        ("0xfF", 255),
        ("+3", 3),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2015-01-01", "2015-01-01"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("none", "none"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
        ("<<", "<<"),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    got = read(f"key: {text}")["key"]
    assert got == value and type(got) is type(value)


def test_nothing_is_null() -> None:
    assert read("a:\nb: {c: }\n") == {"a": None, "b": {"c": None}}
    assert parse("# only a comment\n", "f")[0] is None


def test_aliases_are_written_out() -> None:
    node, _ = parse("a: &x {n: 1}\nb: *x\n", "f")
    assert node is not None and plain(node) == {"a": {"n": 1}, "b": {"n": 1}}
    assert node.entries["a"].node is not node.entries["b"].node  # type: ignore[union-attr]


def test_places_count_from_one() -> None:
    node, _ = parse("a:\n  - b: 1\n    c: [x, 2]\n", "f.yaml")
    assert node is not None
    assert str(locate(node, ())) == "f.yaml:1:1"
    assert str(locate(node, ("a", 0, "c", 1))) == "f.yaml:3:12"
    assert str(locate(node, ("a", 0, "c"), at_key=True)) == "f.yaml:3:5"
    assert str(locate(node, ("a", 0, "zz"))) == "f.yaml:2:5"
    assert str(locate(node, ("a", 7))) == "f.yaml:2:3"
    assert str(locate(node, ("a", 0, "b", 0))) == "f.yaml:2:8"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\n\tb: 2\n", "f:2:1", "got a tab. Indent with spaces."),
        ("a: [1, 2\nb: 3\n", "f:2:2", "while parsing a flow sequence, which starts at line 1"),
        ("a: 'x\n", "f:2:1", "quoted scalar"),
        ("a: b: c\n", "f:1:5", "mapping values are not allowed here"),
        ("a: 1\n# b:\n  c: 2\n", "f:3:3", "does not fit the mapping that starts at line 1. Check its indentation"),
        ("- a: 1\n- b\nc: 2\n", "f:3:1", "does not fit the list that starts at line 1. Check its indentation"),
        ("a: *nobody\n", "f:1:4", "undefined alias"),
        ("a: 1\n---\nb: 2\n", "f:2:1", "another document"),
        ("a: x\x01y\n", "f:1:5", "character U+0001"),
        ("a: 1\nb: \x00\n", "f:2:4", "character U+0000"),
    ],
)
def test_what_is_not_yaml(text: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    [problem] = caught.value.problems
    assert str(problem.mark) == place
    assert words in problem.message


# libyaml itself refuses more than a thousand levels, and PyYAML's own loader, which then finds the words, is slow
@pytest.mark.parametrize(("n", "end"), [(990, "]"), (990, ""), pytest.param(5000, "]", marks=pytest.mark.long)])
def test_deep_nesting_is_an_error_of_ours(n: int, end: str) -> None:
    with pytest.raises(ConfigError, match="f: nested too deeply"):
        parse("[" * n + end * n, "f")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3:1: a: duplicate key. The first is at line 1."),
        ("a: !!int x\n", "f:1:4: a: 'x' cannot be read as int."),
        ("a: !mine 1\n", "f:1:4: a: unknown YAML tag '!mine'. Remove the tag."),
        ("a: &r [*r]\n", "f:1:4: a[0]: this alias is inside of the value that it refers to."),
        ("? {a: 1}\n: 2\n", "f:1:3: expected a scalar as key, got a list or a mapping."),
    ],
)
def test_what_a_job_may_not_have(text: str, told: str) -> None:
    _, [problem] = parse(text, "f")
    assert str(problem) == told


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\x7f", exclude_categories=["Cs"])),
    st.from_regex(r"\A[-+0-9.eExonfyst_:~]{1,6}\Z"),
)


@few_examples(25)
@given(
    st.dictionaries(
        st.text(min_size=1), st.recursive(SCALARS, lambda v: st.lists(v) | st.dictionaries(st.text(), v), max_leaves=5)
    )
)
@pytest.mark.long
def test_dump_is_read_back(value: dict[str, Any]) -> None:
    got = read(dump(value))
    assert got == value
    assert repr(got) == repr(value)
