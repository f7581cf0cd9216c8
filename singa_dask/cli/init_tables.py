"""What ``init`` makes of the columns of a table: label or targets, features, and what is left out; and a test set."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from singa_dask.cli.init_columns import Column, Table, read_table, with_lags
from singa_dask.cli.init_records import MIN_BYTE_RANGE, Options, Output, Records, Rows, UnsureError, listed
from singa_dask.cli.init_split import MIN_SPLIT, stratify, with_split
from singa_dask.data import open_store
from singa_dask.data.codecs.labels import is_point, labels_among
from singa_dask.data.codecs.table_columns import as_texts, is_number, missing_of
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.errors import DataError
from singa_dask.registry import suggest

# texts with more different values than this, or with fewer records for each of them, are no categories
MAX_CATEGORIES, MIN_RECORDS = 50, 4
# whole numbers with at most FEW different values are classes; with more than MANY, which seldom repeat, they are values
FEW, MANY = 10, 100
# at least so many records make a numbering
MIN_NUMBERED = 10
ID = re.compile(r"(?i:id|index|uuid|guid|row|rowid|.*[ _.-]id|unnamed: \d+)|.*[a-z]I[dD]")
MAX_NAMED = 20
# more columns of numbers are not listed in a job file, if they are all that a table has
MAX_LISTED = 64


def survey_table(url: str, test_url: str, backend: str, options: Options, folder: str) -> Records:
    """Look at a table with named columns, or lines of numbers.

    Raises
    ------
    UnsureError
        Two readings are likely.
    DataError
        An option does not fit, or there is nothing to learn.
    """
    table = read_table(url, options)
    if options.lags:
        table = _with_lags(table, options)
    outputs, features, left_out = _choose(table, options)
    reading = _reading(table, options, features, outputs)
    width = sum(len(reading.get("categories", {}).get(each.name, "1")) for each in features)
    said = "another whole number in each record. Give --drop if it is an id"
    trouble = [f"{each.name}: {said}" for each in features if _is_like_id(each)]
    rows = np.flatnonzero(~np.logical_or.reduce([missing_of(table.named[each.name].values) for each in outputs]))
    train, test, split = _split_rows(table, outputs, rows, options)
    if test_url or not table.is_whole or not len(test):
        split = ""
    if options.lags and not split:
        raise DataError(f"{url}: --lags: expected more records, no --test, and a share for --test-split.")
    if unlabelled := len(table.columns[0].values) - len(rows):
        said = f"{unlabelled} records without {' and '.join(each.name for each in outputs)}"
        if not split:
            raise DataError(f"{url}: {said}. Leave them out, or let init write a test set.")
        trouble.append(f"{said} are left out")
    is_packed = url.lower().endswith(".gz") and not split
    read_as = "table" if table.format == "whole" or is_packed else backend
    found = Records(
        source=url,
        url=url,
        backend=read_as,
        form=url.lower().removesuffix(".gz").rpartition(".")[2] if split else read_as,
        shape=(width,),
        outputs=tuple(outputs),
        n_records=table.n,
        seed=options.seed,
        values="bytes" if _are_pixels(features) else "columns",
        test_url=test_url,
        reading=reading,
        trouble=trouble,
        features=tuple(each.name for each in features),
        left_out=_show_reasons(left_out),
    )
    if split:
        found = replace(found, backend=table.suffix[1:])
        return with_split(found, folder, table.suffix, (train, test, split), table.write)
    return replace(found, n_test=_compare(found)) if test_url else found


def _with_lags(table: Table, options: Options) -> Table:
    """Return the table of a time series with the last values of what is predicted."""
    names = [*_resolved(table, options.label, "--label"), *_resolved(table, options.target, "--target")]
    if not names:
        raise DataError(f"{table.url}: --lags {options.lags}: expected --target NAME, or --label NAME.")
    dates = [each for each in table.columns if each.kind in ("date", "timestamp")]
    if dates and not any(_is_sorted(each) for each in dates):
        raise DataError(f"{table.url}: --lags: its records are not in the order of {dates[0].name}. Sort them by it.")
    return with_lags(table, names, options.lags)


def _compare(found: Records) -> int:
    """Return the number of records of a test set, which has to have the columns of the training set."""
    with open_store(found.source, "table", **found.reading) as store:
        facts = store.table_facts
    more = {"facts": facts.to_dict()} if facts is not None else {}
    return count_test(found.test_url, "table", {**found.reading, **more}, facts, found.source)


def count_test(test_url: str, backend: str, reading: Mapping[str, Any], facts: TableFacts | None, url: str) -> int:
    """Return the number of records of a test set.

    Raises
    ------
    DataError
        It has other columns than the training set.
    """
    with open_store(test_url, backend, **reading) as store:
        difference = store.table_facts.compare(facts) if facts and store.table_facts else ""
        if difference:
            raise DataError(f"{test_url}: {difference} in {url}. Expected the same columns in the same order.")
        return store.count


def _choose(table: Table, options: Options) -> tuple[list[Output], list[Column], dict[str, str]]:
    """Return labels or targets, features, and why each other column is left out."""
    labels, targets = _resolved(table, options.label, "--label"), _resolved(table, options.target, "--target")
    if labels and targets:
        raise DataError(f"{table.url}: --label and --target. Expected one of both: classes, or numbers to predict.")
    given = [*labels, *targets]
    dropped = {name for name in _resolved(table, options.drop, "--drop") if name not in given}
    chosen = _resolved(table, options.features, "--features")
    is_wide = len(table.columns) > MAX_LISTED
    left_out = {each.name: _unfit(each, table.n, is_wide) for each in table.columns if each.name not in given}
    left_out |= dict.fromkeys(dropped, "dropped")
    outputs = [_output(table, table.named[name], "given", "label" if labels else "target", options) for name in given]
    if not given:
        column, why = _telling(table, [name for name, reason in left_out.items() if not reason])
        outputs = [_output(table, column, why, "", options)]
    if len({each.is_label for each in outputs}) > 1:
        raise DataError(
            f"{table.url}: {outputs[0].name} and {outputs[1].name}: classes and numbers. Expected one kind."
        )
    names = ["", *(each.name for each in outputs)]
    left_out = {name: reason for name, reason in left_out.items() if name not in names[1:]}
    if chosen:
        left_out = {name: left_out[name] or "not among --features" for name in left_out if name not in chosen}
    known = [table.named[each.name] for each in outputs if each.is_label]
    for name in [name for name, reason in left_out.items() if not reason]:
        left_out[name] = next((twin for label in known if (twin := _tells(table.named[name], label))), "")
    features = [each for name, each in table.named.items() if name not in names and not left_out.get(name)]
    if not features:
        raise DataError(f"{table.url}: no columns for features. Left out: {_show_reasons(left_out)}. Give --features.")
    faulty = next((each for each in features if each.fault), None)
    if faulty:
        fault = faulty.fault.replace(", or set features without this column", "")
        raise DataError(f"{table.url}: column {faulty.name!r}: {fault} Or leave it out by --drop.")
    return outputs, features, left_out


def _show_reasons(left_out: dict[str, str]) -> str:
    """Return names of columns with why each is left out."""
    nameless = "a column without a name"
    shown = [f"{' '.join(name.split()) or nameless} ({reason})" for name, reason in left_out.items() if reason]
    return listed(shown, MAX_NAMED)


def _resolved(table: Table, given: Sequence[str], option: str) -> list[str]:
    """Return the columns that an option gives by names, patterns, positions from 1 on, or as first and last."""
    names, found = list(table.named), list[str]()
    for each in given:
        at = {"first": 0, "last": len(names) - 1}.get(each, int(each) - 1 if each.isdecimal() else -1)
        chosen = [name for name in names if name == each] or fnmatch.filter(filter(None, names), each)
        if not chosen and not 0 <= at < len(names):
            raise DataError(f"{table.url}: no column {each!r} for {option}. {suggest(each, filter(None, names))}")
        found += chosen or [names[at]]
    return found


def _are_pixels(features: Sequence[Column]) -> bool:
    if len(features) <= MAX_LISTED or not all(each.is_whole for each in features):
        return False
    high = max(each.numbers.max() for each in features)
    return bool(MIN_BYTE_RANGE <= high <= 255 and min(each.numbers.min() for each in features) >= 0)


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
    if _is_like_id(column):
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
    # of several labels one may lack a class in the training set
    kinds = ("number", "string") if len(outputs) > 1 else ("number",)
    by_value = [each for each in outputs if each.names and table.named[each.name].kind in kinds]
    categories |= {each.name: list(each.names) for each in by_value}
    if options.classes:
        categories[outputs[0].name] = list(options.classes)
    if categories:
        reading["categories"] = categories
    missing = options.missing or ("mean" if any(each.kind != "string" for each in gaps) else "")
    if is_number(missing):
        reading["missing"] = float(missing)
    elif missing in ("error", "skip", "mean"):
        reading["missing"] = missing
    elif missing:
        raise DataError(f"--missing {missing}: expected error, skip, mean or a number.")
    return reading


# -- labels and targets ---------------------------------------------------------------------------------


def _telling(table: Table, usable: Sequence[str]) -> tuple[Column, str]:
    """Return the column whose name says that it is the label, and why it is that one."""
    names = [name for name in table.named if name]
    found = labels_among(names) if table.text.get("header", True) else []
    ends = [usable[0], usable[-1]] if usable else []
    # "class" may be a feature, such as that of a passenger
    sure = len(found) == 1 and (found[0].lower() not in ("y", "class") or found[0] in ends)
    if sure and not is_point(names):
        return table.named[found[0]], "by its name"
    candidates = found if len(found) > 1 else usable or names
    raise _unknown(table, [table.named[name] for name in candidates])


def _unknown(table: Table, candidates: Sequence[Column]) -> UnsureError:
    shown = candidates if len(candidates) <= MAX_NAMED else [*candidates[:3], *candidates[-3:]]
    described = [f"{each.name} ({each.show()})" for each in shown]
    choices = [(text, {"label": (each.name,)}) for text, each in zip(described, shown, strict=True)]
    advice = "Give --label NAME for classes, or --target NAME for numbers to predict. It may be one of:"
    if not table.text.get("header", True):
        described = [each.show() for each in shown]
        advice = "Its columns have no names. Give --label first, --label last or the position of another one:"
    return UnsureError(table.url, "which column is the label?", choices, "\n  ".join([advice, *described]))


def _output(table: Table, column: Column, why: str, said: str, options: Options) -> Output:
    name, place = column.name, f"{table.url}: column {column.name!r}"
    known = len(column.distinct)
    if column.kind not in ("number", "boolean", "string") or known < 2:
        raise DataError(f"{place} has {known} different values of kind {column.kind}. Expected classes, or numbers.")
    if said == "target" or (column.kind == "number" and not _has_classes(table, column, said)):
        if column.kind == "string":
            fault = f" {column.fault}" if column.fault else ""
            raise DataError(f"{place} has text.{fault} Expected numbers for --target; --label takes classes.")
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
    repeat = known == 2 or 3 * known <= n
    named = column.name.lower() in ("label", "labels", "class") and known <= MANY
    if not column.is_whole:
        if said or known > FEW or not repeat:
            return bool(said) and known <= FEW and repeat
    elif known > MANY and known > n / 10:
        return False
    elif said or ((known <= FEW or named) and repeat):
        return True
    raise UnsureError(
        table.url,
        f"are the {known} different numbers of {column.name!r} classes, or numbers to predict?",
        [("classes", {"label": (column.name,)}), ("numbers to predict", {"target": (column.name,)})],
        f"Give --label {column.name} for classes, or --target {column.name} for numbers.",
    )


# -- the test set ---------------------------------------------------------------------------------------


def _split_rows(table: Table, outputs: Sequence[Output], rows: Rows, options: Options) -> tuple[Rows, Rows, str]:
    """Return rows to train and to test on, and how they were chosen: by time if a column of dates orders them."""
    n_test = round(options.test_split * len(rows))
    if not 0 < n_test < len(rows) or len(rows) < MIN_SPLIT:
        return rows, rows[:0], ""
    dates = next((each for each in table.columns if each.is_date and _is_sorted(each)), None)
    labels = [table.named[each.name] for each in outputs if each.is_label]
    # what is learned has to have all classes
    if options.lags:
        return rows[:-n_test], rows[-n_test:], f"the last {n_test}{f' by {dates.name}' if dates else ''}"
    if dates and all(len(pc.unique(each.values.take(rows[:-n_test]))) == len(each.distinct) for each in labels):
        return rows[:-n_test], rows[-n_test:], f"the last {n_test} by {dates.name}"
    if not labels:
        order = np.random.default_rng(options.seed).permutation(rows)
        return order[n_test:], order[:n_test], f"{n_test} at random, seed {options.seed}"
    train, test, how = stratify(np.array(as_texts(labels[0].values.take(rows)).to_pylist(), object), options)
    return rows[train], rows[test], how


def _is_sorted(column: Column) -> bool:
    values = np.array(column.values.to_pylist(), object)
    if len(column.present) < len(values) or len(column.distinct) < len(values) / 2:
        return False
    return column.kind in ("date", "timestamp") and bool((values[1:] >= values[:-1]).all())
