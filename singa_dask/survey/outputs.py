"""Labels and targets of a table: which columns they are, and whether numbers are classes."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence

from singa_dask.data.codecs.equal_names import name_key
from singa_dask.data.codecs.labels import is_point, labels_among
from singa_dask.errors import DataError
from singa_dask.survey.columns import DATES, ColumnSurvey, show_value
from singa_dask.survey.number_faults import refuse_faults
from singa_dask.survey.numbers import are_mostly_numbers
from singa_dask.survey.options import SurveyOptions, UnsureError
from singa_dask.survey.results import OutputSurvey
from singa_dask.survey.table_survey import TableSurvey
from singa_dask.wording import listed

# integers with at most FEW distinct values are classes; integers with more than MANY distinct values that seldom repeat
# are numbers
FEW, MANY = 10, 100
MAX_NAMED = 20


def outputs_of(table: TableSurvey, options: SurveyOptions, usable: Sequence[str]) -> list[OutputSurvey]:
    """Return the labels of ``--label`` or the targets of ``--target``; else the label found by its name.

    Only ``usable`` columns can be found.

    Raises
    ------
    UnsureError
        Several columns may be the label, or numbers may be classes.
    DataError
        A column cannot be predicted, or there are both labels and targets.
    """
    said = "label" if options.label else "target"
    outputs = [_output(table, table.named[name], "given", said, options) for name in (*options.label, *options.target)]
    outputs = outputs or [_output(table, *_telling(table, usable, options.drop), "", options)]
    if len({each.is_label for each in outputs}) > 1:
        raise DataError(
            f"{table.url}: {outputs[0].name} and {outputs[1].name}: classes and numbers. Expected one kind."
        )
    return outputs


def _telling(table: TableSurvey, usable: Sequence[str], dropped: Sequence[str]) -> tuple[ColumnSurvey, str]:
    """Return the column whose name means a label, such as "label", and the reason for the choice."""
    names = [name for name in table.named if name and name not in dropped]
    labels = labels_among(names) if table.text.get("header", True) else []
    ends = [usable[0], usable[-1]] if usable else []
    # a column "class" may be a feature, such as the class of a passenger
    sure = len(labels) == 1 and (labels[0].lower() not in ("y", "class") or labels[0] in ends)
    if sure and not is_point(names):
        return table.named[labels[0]], "by its name"
    candidates = labels if len(labels) > 1 else usable or names
    raise _unknown(table, [table.named[name] for name in candidates])


def _unknown(table: TableSurvey, candidates: Sequence[ColumnSurvey]) -> UnsureError:
    shown = candidates if len(candidates) <= MAX_NAMED else [*candidates[:3], *candidates[-3:]]
    described = [f"{each.name} ({each.show()})" for each in shown]
    choices = [(text, {"label": (each.name,)}) for text, each in zip(described, shown, strict=True)]
    advice = "Pass --label NAME for classes, or --target NAME for numbers to predict. It may be one of:"
    if not table.text.get("header", True):
        described = [each.show() for each in shown]
        advice = "Its columns have no names. Pass --label first, --label last or the position of another one:"
    return UnsureError(table.url, "which column is the label?", choices, "\n  ".join([advice, *described]))


def _output(table: TableSurvey, column: ColumnSurvey, why: str, said: str, options: SurveyOptions) -> OutputSurvey:
    """Return a label or target; ``said`` is "label" or "target" if the user has passed this option."""
    place, known = f"{table.url}: column {column.name!r}", len(column.distinct)
    if column.kind not in ("number", "boolean", "string", "empty"):
        hint = ", in a column that you make of it, such as the month or hour" if column.kind in DATES else ""
        raise DataError(f"{place} has values of kind {column.kind}. Expected classes, or numbers{hint}.")
    if known < 2:
        found = f"only one value, {show_value(column.distinct[0].as_py())!r}" if known else "no values"
        raise DataError(f"{place} has {found}. Expected at least two.")
    if said == "target" and column.kind == "string":
        refuse_faults(table, [column], options)
        raise DataError(f"{place} has text. Expected numbers for --target; --label takes classes.")
    if said == "target" or (column.kind == "number" and not _has_classes(table, column, said)):
        if said != "target":
            why = f"{why}; {known} different numbers are predicted as such{', --label takes classes' * (not said)}"
        counted, numbers = column.counted, column.numbers
        mean, std = (counted.mean, counted.std) if counted else (float(numbers.mean()), float(numbers.std()))
        return OutputSurvey(column.name, why, mean=mean, std=std or 1.0)
    if known > MANY and 2 * known > column.n_present:
        are_numbers = column.kind == "number" or are_mostly_numbers(column.present)
        hint = f" Pass --target {shlex.quote(column.name)} to predict them as numbers." if are_numbers else ""
        found = f"{known} different values in {column.n} records"
        raise DataError(f"{place} has {found}. Expected classes, which repeat.{hint}")
    if not said and column.kind == "number" and known > 2:
        why = f"{why}; {known} different numbers are classes, --target predicts them as numbers"
    texts = _classes_of(table, column, options)
    is_numbered = column.kind == "number" and [float(text) for text in texts] == list(range(len(texts)))
    names = () if is_numbered and not options.classes else texts
    return OutputSurvey(column.name, why, _counts_of(column, texts), names)


def _classes_of(table: TableSurvey, column: ColumnSurvey, options: SurveyOptions) -> tuple[str, ...]:
    """Return the names of the classes, in the order of ``--classes`` if given."""
    place, known = f"{table.url}: column {column.name!r}", len(column.distinct)
    texts = ("false", "true") if column.kind == "boolean" else table.texts(column.name)
    if column.kind == "number":
        # pandas writes integers as 1.0 if the column has missing values
        texts = tuple(map(name_key, texts))
        if len(texts) != known and table.is_whole:
            raise DataError(f"{place}: {listed(texts, 6)}, which are {known} different numbers. Write each in one way.")
    if options.classes and sorted(options.classes) != sorted(texts):
        raise DataError(f"{place} has {listed(texts, MAX_NAMED)}. Pass --classes with exactly these.")
    return options.classes or texts


def _counts_of(column: ColumnSurvey, texts: Sequence[str]) -> tuple[int, ...]:
    """Return the number of records of each class."""
    read: Callable[[str], float | str] = float if column.kind == "number" else name_key
    counted = Counter[float | str]()
    for value, n in column.value_counts():
        counted[read(value if column.kind != "boolean" else str(value).lower())] += n
    return tuple(counted[read(text)] for text in texts)


def _has_classes(table: TableSurvey, column: ColumnSurvey, said: str) -> bool:
    """Return whether numbers are classes.

    Raises an UnsureError if this is unclear, and a DataError for classes that seldom repeat.
    """
    known, n = len(column.distinct), column.n_present
    repeat = known == 2 or 3 * known <= n
    named = column.name.lower() in ("label", "labels", "class") and known <= MANY
    if not column.is_whole:
        if said or known > FEW or not repeat:
            return bool(said) and known <= FEW and repeat
    elif said and known > MANY and n / 20 < known <= n / 2:
        name = shlex.quote(column.name)
        raise DataError(
            f"{table.url}: column {column.name!r} has {known} different numbers in {n} records. Expected classes, "
            f"which repeat. Pass --target {name} to predict numbers, or --label {name} --category {name} for classes."
        )
    elif known > MANY and known > n / 10:
        return bool(said) and 2 * known <= n
    elif said or ((known <= FEW or named) and repeat):
        return True
    raise UnsureError(
        table.url,
        f"are the {known} different numbers of {column.name!r} classes, or numbers to predict?",
        [("classes", {"label": (column.name,)}), ("numbers to predict", {"target": (column.name,)})],
        f"Pass --label {column.name} for classes, or --target {column.name} for numbers.",
    )
