"""What ``init`` makes of the columns of a table: label or targets, features, and what is left out; and a test set."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.cli.init_columns import Column, Options, Table, UnsureError, show_value
from singa_dask.data.codecs.labels import labels_among
from singa_dask.data.codecs.table_columns import as_texts, missing_of
from singa_dask.errors import DataError
from singa_dask.registry import suggest

__all__ = ["Choice", "Output", "choose", "show_output", "show_reasons", "split_rows"]

# texts with more different values than this, or with fewer records for each of them, are no categories
MAX_CATEGORIES, MIN_RECORDS = 50, 4
# whole numbers with at most FEW different values are classes; with more than MANY, which seldom repeat, they are values
FEW, MANY = 10, 100
# at least so many records make a numbering
MIN_NUMBERED = 10
MIN_SPLIT = 10
ID = re.compile(r"(?i:id|index|uuid|guid|row|rowid|.*[ _.-]id|unnamed: \d+)|.*[a-z]I[dD]")
MAX_NAMED = 20
# more columns of numbers are not listed in a job file, if they are all that a table has
MAX_LISTED = 64


@dataclass(frozen=True)
class Output:
    """A label or a target: its column, why it is one, and its classes with their numbers of records, if it has some.

    ``names`` are the values that are classes, in order; none if they are 0, 1, ...
    """

    name: str
    why: str
    counts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0

    @property
    def is_label(self) -> bool:
        """Whether it has classes."""
        return bool(self.counts)


@dataclass(frozen=True)
class Choice:
    """What the columns of a table are: keys of ``store_conf``, and what a plan says."""

    reading: dict[str, Any]
    outputs: tuple[Output, ...]
    n_values: int
    features: tuple[str, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unlabelled: int = 0
    is_plain: bool = False
    is_pixels: bool = False


def choose(table: Table, options: Options) -> Choice:
    """Choose what columns are.

    Raises
    ------
    UnsureError
        Two readings are likely.
    DataError
        An option does not fit, or there is nothing to learn.
    """
    given = [*_resolved(table, options.label, "--label"), *_resolved(table, options.target, "--target")]
    dropped = {name for pattern in options.drop for name in _matching(table, pattern, "--drop") if name not in given}
    chosen = [name for pattern in options.features for name in _matching(table, pattern, "--features")]
    is_wide = len(table.columns) > MAX_LISTED
    left_out = {each.name: _unfit(each, table.n, is_wide) for each in table.columns if each.name not in given}
    left_out |= dict.fromkeys(dropped, "dropped")
    outputs = _outputs(table, options, [name for name, reason in left_out.items() if not reason])
    names = [each.name for each in outputs]
    for each in outputs:
        left_out.pop(each.name, None)
    if chosen:
        left_out = {name: left_out[name] or "not among --features" for name in left_out if name not in chosen}
    labels = [table.named[each.name] for each in outputs if each.is_label]
    for name in [name for name, reason in left_out.items() if not reason]:
        left_out[name] = next((twin for label in labels if (twin := _tells(table.named[name], label))), "")
    features = [table.named[name] for name in table.named if name not in names and not left_out.get(name)]
    features = [each for each in features if each.name]
    if not features:
        raise DataError(f"{table.url}: no columns for features. Left out: {show_reasons(left_out)}. Give --features.")
    faulty = next((each for each in features if each.fault), None)
    if faulty:
        fault = faulty.fault.replace(", or set features without this column", "")
        raise DataError(f"{table.url}: column {faulty.name!r}: {fault} Or leave it out by --drop.")
    reading = _reading(table, options, features, outputs)
    width = sum(len(reading.get("categories", {}).get(each.name, "1")) for each in features)
    unlabelled = int(np.logical_or.reduce([missing_of(table.named[name].values) for name in names]).sum())
    said = "another whole number in each record. Give --drop if it is an id"
    notes = [f"{each.name}: {said}" for each in features if _is_like_id(each)]
    if unlabelled:
        notes.append(f"{unlabelled} records without {' and '.join(names)} are left out")
    is_plain = (
        table.format == "csv"
        and len(outputs) == 1
        and table.columns[0].name == outputs[0].name
        and len(features) == len(table.columns) - 1
        and not reading.keys() & {"categories", "missing", "charset", "target"}
        and not (options.features or options.classes)
    )
    numbers = [each.numbers for each in features if each.kind == "number"]
    is_pixels = (
        len(numbers) == len(features) > 64
        and all(each.is_whole for each in features)
        and (min(each.min() for each in numbers) >= 0 and 100 <= max(each.max() for each in numbers) <= 255)
    )
    return Choice(
        reading,
        tuple(outputs),
        width,
        tuple(each.name for each in features),
        {name or "a column without a name": reason for name, reason in left_out.items() if reason},
        tuple(notes),
        unlabelled,
        is_plain,
        is_pixels,
    )


def show_reasons(left_out: dict[str, str]) -> str:
    """Return names of columns with why each is left out."""
    shown = [f"{' '.join(name.split())} ({reason})" for name, reason in left_out.items() if reason]
    more = f" and {len(shown) - MAX_NAMED} more" if len(shown) > MAX_NAMED else ""
    return ", ".join(shown[:MAX_NAMED]) + more


def _resolved(table: Table, given: Sequence[str], option: str) -> list[str]:
    """Return the names of columns that an option gives by name, by position from 1 on, or as first and last."""
    names, found = list(table.named), list[str]()
    for each in given:
        at = {"first": 0, "last": len(names) - 1}.get(each, int(each) - 1 if each.isdecimal() else -1)
        if each in names:
            found.append(each)
        elif 0 <= at < len(names):
            found.append(names[at])
        else:
            raise DataError(f"{table.url}: no column {each!r} for {option}. {suggest(each, filter(None, names))}")
    return found


def _matching(table: Table, pattern: str, option: str) -> list[str]:
    found = [name for name in table.named if name == pattern or fnmatch.fnmatchcase(name, pattern)]
    return found or _resolved(table, [pattern], option)


# -- features -------------------------------------------------------------------------------------------


def _unfit(column: Column, n: int, is_wide: bool) -> str:
    """Return why a column is no feature; empty if it is, as a constant is among many, such as pixels."""
    if column.is_index or not column.name:
        return "index"
    if column.is_date and len(column.present):
        return "dates: write them as numbers, such as days and weekday, to use them"
    if column.kind not in ("number", "boolean", "string"):
        return "no values" if column.kind == "empty" else column.kind
    known = len(column.distinct)
    if known < 2:
        return "no values" if not known else "" if is_wide and column.kind == "number" else "constant"
    if column.kind == "string":
        if column.fault or (known < n and known <= min(MAX_CATEGORIES, max(n / MIN_RECORDS, 2))):
            return ""
        return "texts, another in each record" if known == n else f"texts, {known} different: no categories"
    if ID.fullmatch(column.name) and column.is_whole:
        return "an id by its name"
    if known == len(column.values) >= MIN_NUMBERED and column.is_whole:
        steps = np.diff(np.sort(column.numbers))
        if steps.min() == steps.max() and (steps[0] == 1 or (np.diff(column.numbers) == steps[0]).all()):
            return "numbers the records"
    return ""


def _is_like_id(column: Column) -> bool:
    return column.is_whole and len(column.values) >= MIN_NUMBERED and len(column.distinct) == len(column.values)


def _tells(column: Column, label: Column) -> str:
    """Return that a column has one value for each class, if it has."""
    is_code = column.kind != "number" or column.is_whole
    if not is_code or len(column.distinct) != len(label.distinct) or len(label.values) < MIN_NUMBERED:
        return ""
    pairs = set(zip(column.values.to_pylist(), label.values.to_pylist(), strict=True))
    return f"is {label.name} in other words" if len(pairs) == len(label.distinct) else ""


def _reading(table: Table, options: Options, features: Sequence[Column], outputs: Sequence[Output]) -> dict[str, Any]:
    reading: dict[str, Any] = dict(table.text)
    texts = [each for each in features if each.kind == "string"]
    others = [name for name, each in table.named.items() if each.kind in ("number", "boolean") and not each.is_index]
    default = [name for name in others if name and name not in [each.name for each in outputs]]
    if len(features) <= MAX_LISTED or [each.name for each in features] != default:
        reading["features"] = [each.name for each in features]
    for key, is_label in (("label", True), ("target", False)):
        if chosen := [each.name for each in outputs if each.is_label == is_label]:
            reading[key] = chosen[0] if is_label and len(chosen) == 1 else chosen
    gaps = [each for each in features if len(each.present) < len(each.values)]
    categories = {each.name: ([""] if each in gaps else []) + each.distinct.to_pylist() for each in texts}
    by_value = [each for each in outputs if each.names and table.named[each.name].kind == "number"]
    categories |= {each.name: list(each.names) for each in by_value}
    if options.classes:
        categories[outputs[0].name] = list(options.classes)
    if categories:
        reading["categories"] = categories
    missing = options.missing or ("mean" if any(each.kind != "string" for each in gaps) else "")
    if missing:
        reading["missing"] = missing if missing in ("error", "skip", "mean") else _number(missing)
    return reading


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"--missing {text}: expected error, skip, mean or a number.") from None


# -- labels and targets ---------------------------------------------------------------------------------


def _outputs(table: Table, options: Options, usable: Sequence[str]) -> list[Output]:
    labels = _resolved(table, options.label, "--label")
    targets = _resolved(table, options.target, "--target")
    if labels and targets:
        raise DataError(f"{table.url}: --label and --target. Expected one of both: classes, or numbers to predict.")
    found = [_output(table, table.named[name], "given", "label", options) for name in labels]
    found += [_output(table, table.named[name], "given", "target", options) for name in targets]
    if not found:
        column, why = _telling(table, usable)
        found = [_output(table, column, why, "", options)]
    if len({each.is_label for each in found}) > 1:
        raise DataError(f"{table.url}: {found[0].name} and {found[1].name}: classes and numbers. Expected one kind.")
    return found


def _telling(table: Table, usable: Sequence[str]) -> tuple[Column, str]:
    """Return the column whose name says that it is the label, and why it is that one."""
    names = [name for name in table.named if name]
    found = labels_among(names) if table.text.get("header", True) else []
    ends = [usable[0], usable[-1]] if usable else []
    lower = [name.lower() for name in names]
    # a point has x and y; "class" may be a feature, such as that of a passenger
    sure = len(found) == 1 and (found[0].lower() not in ("y", "class") or found[0] in ends)
    if sure and not (found[0].lower() == "y" and "x" in lower and len(names) > 2):
        return table.named[found[0]], "by its name"
    candidates = found if len(found) > 1 else usable or names
    raise _unknown(table, [table.named[name] for name in candidates])


def _unknown(table: Table, candidates: Sequence[Column]) -> UnsureError:
    shown = candidates if len(candidates) <= MAX_NAMED else [*candidates[:3], *candidates[-3:]]
    if table.text.get("header", True):
        advice = "Give --label NAME for classes, or --target NAME for numbers to predict. It may be one of:\n"
        lines = [f"  {each.name} ({each.show()})" for each in shown]
    else:
        advice = "Its columns have no names. Give --label first, --label last or the position of another one:\n"
        lines = [f"  {each.show()}" for each in shown]
    choices = [(f"{each.name} ({each.show()})", {"label": (each.name,)}) for each in shown]
    return UnsureError(table.url, "which column is the label?", choices, advice + "\n".join(lines))


def _output(table: Table, column: Column, why: str, said: str, options: Options) -> Output:
    name, place = column.name, f"{table.url}: column {column.name!r}"
    known = len(column.distinct)
    if column.kind not in ("number", "boolean", "string") or known < 2:
        raise DataError(f"{place} has {known} different values of kind {column.kind}. Expected classes, or numbers.")
    if said == "target" or (column.kind == "number" and not _has_classes(table, column, said)):
        if column.kind == "string":
            raise DataError(f"{place} has text. {column.fault} Expected numbers for --target; --label takes classes.")
        numbers = column.numbers
        if said != "target":
            why = f"{why}; {known} different numbers are predicted as such{', --label takes classes' * (not said)}"
        return Output(name, why, mean=float(numbers.mean()), std=float(numbers.std()) or 1.0)
    if known > MANY and 2 * known > len(column.present):
        raise DataError(f"{place} has {known} different values in {table.n} records. Expected classes, which repeat.")
    if not said and column.kind == "number" and known > 2:
        why = f"{why}; {known} different numbers are classes, --target predicts them as numbers"
    values = column.numbers.tolist() if column.kind == "number" else as_texts(column.present).to_pylist()
    texts = ("false", "true") if column.kind == "boolean" else table.texts(name)
    if column.kind == "number" and len(texts) != known and table.is_whole:
        raise DataError(f"{place}: {', '.join(texts[:6])}, which are {known} different numbers. Write each in one way.")
    is_counted = column.kind == "number" and [float(text) for text in texts] == list(range(len(texts)))
    if options.classes:
        if sorted(options.classes) != sorted(texts):
            raise DataError(f"{place} has {', '.join(texts[:MAX_NAMED])}. Expected these in --classes, in an order.")
        texts = options.classes
    counted = Counter(values)
    counts = tuple(counted[float(text) if column.kind == "number" else text] for text in texts)
    return Output(name, why, counts, () if is_counted and not options.classes else texts)


def _has_classes(table: Table, column: Column, said: str) -> bool:
    """Return whether numbers are classes.

    Raises
    ------
    UnsureError
        They may be.
    """
    known, n = len(column.distinct), len(column.present)
    are_many = known > MANY and known > n / 10
    repeat = known == 2 or 3 * known <= n
    if column.is_whole:
        if said:
            return not are_many
        named = column.name.lower() in ("label", "labels", "class") and known <= MANY
        if are_many or ((known <= FEW or named) and repeat):
            return not are_many
    else:
        if said or known > FEW or not repeat:
            return bool(said) and known <= FEW and repeat
    raise UnsureError(
        table.url,
        f"are the {known} different numbers of {column.name!r} classes, or numbers to predict?",
        [("classes", {"label": (column.name,)}), ("numbers to predict", {"target": (column.name,)})],
        f"Give --label {column.name} for classes, or --target {column.name} for numbers.",
    )


# -- the test set ---------------------------------------------------------------------------------------


def split_rows(
    table: Table, choice: Choice, options: Options
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], str]:
    """Return rows to train and to test on, and how they were chosen: by time if a column of dates orders them."""
    names = [each.name for each in choice.outputs]
    rows = np.flatnonzero(~np.logical_or.reduce([missing_of(table.named[name].values) for name in names]))
    n_test = round(options.test_split * len(rows))
    if not 0 < n_test < len(rows) or len(rows) < MIN_SPLIT:
        return rows, rows[:0], ""
    dates = next((each for each in table.columns if each.is_date and _is_sorted(each)), None)
    if dates is not None:
        return rows[:-n_test], rows[-n_test:], f"the last {n_test} by {dates.name}"
    random = np.random.default_rng(options.seed)
    if not choice.outputs[0].is_label:
        order = random.permutation(rows)
        return order[n_test:], order[:n_test], f"{n_test} at random, seed {options.seed}"
    column = table.named[names[0]].values.take(rows)
    codes = np.unique(np.array(as_texts(column).to_pylist(), object), return_inverse=True)[1]
    chosen = [random.permutation(rows[codes == code]) for code in range(codes.max() + 1)]
    # of a class with one record, it is learned
    counts = [min(round(options.test_split * len(each)), len(each) - 1) for each in chosen]
    test = np.concatenate([each[:k] for each, k in zip(chosen, counts, strict=True)])
    return np.setdiff1d(rows, test), test, f"{len(test)} at random, as many of each class, seed {options.seed}"


def _is_sorted(column: Column) -> bool:
    values = np.array(column.values.to_pylist(), object)
    if len(column.present) < len(values) or len(column.distinct) < len(values) / 2:
        return False
    return column.kind in ("date", "timestamp") and bool((values[1:] >= values[:-1]).all())


def show_output(output: Output, n_values: int = MAX_NAMED) -> str:
    """Return what a plan says of a label or a target."""
    if not output.is_label:
        return f"target: {output.name}, {output.why}. Mean {output.mean:.6g}, deviation {output.std:.6g}"
    names = output.names or tuple(map(str, range(len(output.counts))))
    total = sum(output.counts)
    counted = zip(names, output.counts, strict=True)
    parts = [f"{show_value(each)} {count} ({count / max(total, 1):.0%})" for each, count in counted]
    more = f" and {len(parts) - n_values} more" if len(parts) > n_values else ""
    return f"label: {output.name}, {output.why}. {len(parts)} classes: {', '.join(parts[:n_values])}{more}"
