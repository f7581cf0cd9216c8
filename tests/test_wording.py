"""Names in messages: lists of them, and suggestions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from singa_dask.wording import listed, suggest


@pytest.mark.parametrize(
    ("names", "text"), [((), ""), (["a"], "a"), (("a", "b"), "a, b"), (list("abcdef"), "a, b and 4 more")]
)
def test_a_list_of_names_ends_with_how_many_more_there_are(names: Sequence[str], text: str) -> None:
    assert listed(names, 2) == text


def test_a_name_with_a_comma_is_in_quotes() -> None:
    names = ["Plus, basic", "família", " pro", "'a, b' (2 of 3)", "fee (net, yearly)", ""]
    assert listed(names) == "'Plus, basic', família, ' pro', 'a, b' (2 of 3), fee (net, yearly), "


def test_suggest_asks_only_when_something_is_close() -> None:
    assert suggest("xyz", ["b", "a"]) == "Known: a, b."
    assert suggest("ALPHA", ["alpha", "beta"]) == "Did you mean 'alpha'? Known: alpha, beta."
