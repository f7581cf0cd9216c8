"""Names of columns: equal spellings, and errors for columns that are missing or occur twice."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence

from singa_dask.errors import DataError, Remedy
from singa_dask.wording import listed, question_of

# maximum number of missing columns for which a similar name is searched; in wide tables, a search takes long
MAX_QUESTIONS = 5


def refuse_twice(names: Sequence[str], where: str) -> None:
    """Raise a `DataError` if two columns have the same name."""
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise DataError(f"{where}: column {twice!r} occurs twice. Rename one.")


def as_spelled(names: Sequence[str], wanted: Collection[str], where: str) -> list[str]:
    """Return the names of columns, with each wanted column spelled as in ``wanted``.

    Some systems write an accented letter as one character (NFC), others as a letter and a mark (NFD). Both spellings
    are the same name. Raises a `DataError` if a wanted column occurs twice.
    """
    if all(map(str.isascii, names)):
        return list(names)
    by_form = {unicodedata.normalize("NFC", name): name for name in wanted}
    spelled = [name if name in wanted else by_form.get(unicodedata.normalize("NFC", name), name) for name in names]
    refuse_twice([name for name in spelled if name in wanted], where)
    return spelled


def refuse_absent(
    url: str, columns: Collection[str], wanted: Sequence[str], fillings: tuple[str, ...] | None = None
) -> None:
    """Raise a `DataError` if data lacks columns that a net was trained on.

    ``fillings`` are the values of the error's remedy if the caller may ask for these columns to be filled in.
    """
    if absent := [name for name in wanted if name not in columns]:
        what = f"columns {listed([*map(repr, absent)])} are" if len(absent) > 1 else f"column {absent[0]!r} is"
        others = {*columns}.difference(wanted)
        questions = (question_of(name, sorted(others)) for name in absent[:MAX_QUESTIONS])
        message = f"{url}: {what} missing. {next(filter(None, questions), '')}{show_columns(list(columns))}"
        if fillings is None:
            raise DataError(message)
        remedy = Remedy("absent", f"Add {'them' if len(absent) > 1 else 'it'} to the data.", fillings)
        raise DataError(f"{message} {remedy.text}", remedy=remedy)


def absent_warning(columns: Collection[str], filled: Sequence[str], known: Sequence[str]) -> str:
    """Return a warning that data lacks some of the ``known`` columns, and that these are filled in."""
    what = f"columns {listed([*map(repr, filled)])}" if len(filled) > 1 else f"column {filled[0]!r}"
    others = sorted({*columns}.difference(known))
    question = next(filter(None, (question_of(name, others) for name in filled[:MAX_QUESTIONS])), "")
    return f"no {what}. {question}All values are read as missing, and filled in."


def show_columns(names: Mapping[str, str] | Sequence[str]) -> str:
    """Format the names of columns for a message."""
    return f"Columns: {listed([name for name in names if name]) or 'none'}."
