"""Split records into training and test set, or count a test set that exists."""

from __future__ import annotations

import copy
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from singa_dask import fs
from singa_dask.data.split import SplitConf
from singa_dask.data.stores import Store, open_store
from singa_dask.data.stores.arrow.arrow import ArrowStore
from singa_dask.data.stores.label_match import label_table
from singa_dask.data.tables.column_values import as_texts
from singa_dask.data.tables.facts import TableFacts
from singa_dask.errors import DataError
from singa_dask.redaction import readable
from singa_dask.shown import plural
from singa_dask.survey.choice import sorting_column
from singa_dask.survey.options import SurveyOptions
from singa_dask.survey.results import OutputSurvey, RecordSurvey, Rows
from singa_dask.survey.table_survey import TableSurvey

# minimum number of test records; fewer are too few to judge a net
MIN_TESTED = 10
# MIN_SPLIT: data with fewer records are not split. MAX_COPIED: arrays with more bytes are not copied
MIN_SPLIT = 10
MAX_COPIED = 1 << 28
NOT_COPIED = f"--copy: more than {MAX_COPIED >> 20} MiB are not copied. Leave it out."
# maximum number of test sets to try, and of records in all test sets together
MAX_DRAWS, MAX_DRAWN = 1000, 1_000_000
Split = tuple[Rows, Rows, str]
"""Training rows, test rows, and a text that says how the test rows were chosen."""


def _largest(labels: npt.NDArray[Any]) -> float:
    """Return the share of the largest class."""
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def _tested(counts: Rows, share: float) -> Rows:
    """Return how many records of each class to test on; at least one of each class is for training."""
    wanted: Rows = np.minimum(np.rint(share * counts), counts - 1).astype(np.int64)
    return wanted


def stratify(labels: npt.NDArray[Any], options: SurveyOptions) -> Split:
    """Split records at random, stratified by class."""
    random, codes = np.random.default_rng(options.seed), np.unique(labels, return_inverse=True)[1]
    n = np.bincount(codes)
    chosen = [random.permutation(rows) for rows in np.split(np.argsort(codes, kind="stable"), np.cumsum(n)[:-1])]
    counts = _tested(n, options.test_split)
    test = np.sort(np.concatenate([each[:k] for each, k in zip(chosen, counts, strict=True)]))
    how = f"{len(test)} at random, as many of each class, seed {options.seed}"
    return np.delete(np.arange(len(codes)), test), test, how


def split_rows(table: TableSurvey, outputs: Sequence[OutputSurvey], rows: Rows, options: SurveyOptions) -> Split:
    """Return the training rows, the test rows, and a text that says how they were chosen.

    If the rows are sorted by a date, the last rows are the test set. Unless the data is copied, a rule of the job
    chooses other test rows later.
    """
    n_test = round(options.test_split * len(rows))
    if not 0 < n_test < len(rows) or len(rows) < MIN_SPLIT:
        return rows, rows[:0], ""
    if options.split_by:
        return _split_by_key(table, rows, options)
    dates = sorting_column(table, options)
    if dates and 2 * len(dates.distinct) < table.n_seen:
        dates = None
    labels = [table.named[each.name] for each in outputs if each.is_label]
    # the training set needs records of all classes
    if options.lags:
        return rows[:-n_test], rows[-n_test:], f"the last {n_test}{f' by {dates.name}' if dates else ''}"
    if dates and all(len(pc.unique(each.values.take(rows[:-n_test]))) == len(each.distinct) for each in labels):
        return rows[:-n_test], rows[-n_test:], f"the last {n_test} by {dates.name}"
    if not (options.copy and labels):
        order = np.random.default_rng(options.seed).permutation(rows)
        return order[n_test:], order[:n_test], f"{n_test} at random, seed {options.seed}"
    train, test, how = stratify(pc.rank(as_texts(labels[0].values.take(rows)), tiebreaker="dense").to_numpy(), options)
    return rows[train], rows[test], how


def _split_by_key(table: TableSurvey, rows: Rows, options: SurveyOptions) -> Split:
    """Split rows so that rows with equal values in a column are in the same part.

    Returns the training rows, the test rows, and a text that describes the split.
    """
    name, seed = options.split_by, abs(options.seed)
    keys = table.keys(name)
    is_test = np.isin(rows, SplitConf(part="test", test_share=options.test_split, seed=seed, key=name).of_keys(keys))
    train, test = rows[~is_test], rows[is_test]
    n_train, n_test = (len(pc.unique(keys.take(part).drop_null())) for part in (train, test))
    if not (len(train) and len(test)):
        said = f"its {plural(n_train + n_test, 'different value')} would be in one part"
        raise DataError(f"{table.url}: --split-by {name}: {said}. Choose another column, --seed or --test-split.")
    of_all = "" if table.is_whole else f"of the {len(keys)} records that were read "
    how = f"{of_all}{len(test)} with {n_test} values of {name}; {len(train)} with {n_train} to train on, seed {seed}"
    return train, test, how


def directory_of(url: str) -> str:
    """Return the directory that contains the data at a URL or pattern."""
    return posixpath.dirname(re.split(r"[*?[]", url.rstrip("/"))[0])


def copies_folder(url: str, folder: str) -> str:
    """Return the folder for copies: beside the job file, or beside remote data."""
    if fs.local_path(url) is not None:
        return folder
    return fs.join(directory_of(url), posixpath.basename(folder))


def with_split(
    records: RecordSurvey, folder: str, suffix: str, split: Split, write: Callable[[str, Rows], None]
) -> RecordSurvey:
    """Return the survey with training and test records in two files.

    ``write`` is called with the URL of a file and the indices of its records.
    """
    (train, test, how), names = split, (f"train{suffix}", f"test{suffix}")

    def write_both(place: str) -> None:
        fs.makedirs(place)
        for name, rows in zip(names, (train, test), strict=True):
            write(fs.join(place, name), rows)

    url, test_url = (fs.join(copies_folder(records.source, folder), name) for name in names)
    records = replace(records, url=url, test_url=test_url, n_records=len(train), n_test=len(test))
    return replace(records, split=how, write=write_both)


def split_by_rule(
    survey: RecordSurvey,
    options: SurveyOptions,
    kept: Rows | None,
    labels: npt.NDArray[Any] | None = None,
    test_from: int = 0,
    order: str = "",
) -> RecordSurvey:
    """Return the survey with a test set that is a part of the store: a random share, or the last records.

    Parameters
    ----------
    kept : ndarray, optional
        Store indices of the records that the job uses. None if not all records were read.
    labels : array, optional
        Class of each record in ``kept``. If given, the split is stratified.
    test_from : int
        Index of the first test record, if the last records are the test set.
    order : str
        Text that describes the order of the records, if ``test_from`` is given.
    """
    n = survey.n_records if kept is None else len(kept)
    rule = {"test_from": test_from} if test_from else {"test_share": options.test_split, "seed": abs(options.seed)}
    if n < MIN_SPLIT:
        return survey
    if kept is None:
        n_test = n - test_from if test_from else round(options.test_split * n)
    else:
        if labels is not None and not test_from:
            codes = np.unique(labels, return_inverse=True)[1]
            wanted = _tested(np.bincount(codes), options.test_split)
            if not wanted.any():
                return survey
            rule["seed"] = _even_seed(codes, kept, wanted, options)
        is_test = np.isin(kept, SplitConf.model_validate({"part": "test", **rule}).rows(0, kept[-1] + 1))
        n_test = int(is_test.sum())
        if labels is not None and n_test:
            survey = replace(survey, largest=_largest(labels[is_test]))
    if not 0 < n_test < n:
        return survey
    of_each = ", about the same share of each class" * (labels is not None and survey.has_classes)
    how = f"{n_test} at random{of_each}, seed {rule.get('seed')}"
    how = f"{'about ' * (kept is None)}{f'the last {n_test}{order}' if test_from else how}"
    return replace(survey, test_url=survey.url, split=how, rule=rule, n_records=n - n_test, n_test=n_test)


def _even_seed(codes: Rows, kept: Rows, wanted: Rows, options: SurveyOptions) -> int:
    """Return the seed whose split comes closest to the wanted number of test records of each class.

    Several seeds are tried, because the rule of the split ignores classes: in a small table, an arbitrary seed may give
    too many records of one class to the test set.
    """
    n, seed = np.bincount(codes), abs(options.seed)
    classes = np.full(kept[-1] + 1, len(n))
    classes[kept] = codes
    more = np.random.default_rng(seed).integers(1 << 31, size=min(MAX_DRAWS, MAX_DRAWN // len(classes)))

    def unevenness(seed: int) -> tuple[int, int]:
        rows = SplitConf(part="test", test_share=options.test_split, seed=seed).rows(0, len(classes))
        tested = np.bincount(classes[rows], minlength=len(n) + 1)[:-1]
        return int((tested == n).sum()), int(np.abs(tested - wanted).sum())

    seeds: list[int] = [seed, *more.tolist()]
    return min(seeds, key=unevenness)


def split_store(survey: RecordSurvey, closed: Store, options: SurveyOptions, folder: str) -> RecordSurvey:
    """Return the survey with a test set, unless there are too few records."""
    with copy.copy(closed) as store:
        if survey.values == "columns" and len(survey.shape) == 1:
            # widen the values, as `standardise` does
            store.widen()
        # image files are not counted, because they are not copied
        files, n_bytes = store.record_files(0, store.count), store.count * store.record_bytes
        is_small = bool(files) or n_bytes <= MAX_COPIED
        if not options.copy:
            labels = [store.read_labels(i) for i in range(len(store.blocks))] if is_small else []
            return split_by_rule(survey, options, np.arange(store.count), np.concatenate(labels) if labels else None)
        if not is_small:
            raise DataError(f"{survey.url}: {NOT_COPIED}")
        if store.count < MIN_SPLIT:
            return survey
        blocks = [{"label": store.read_labels(i)} if files else store.read_block(i) for i in range(len(store.blocks))]
        records = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    train, test, how = stratify(records["label"], options)
    if not len(test):
        return survey
    classes, reading = closed.class_names, dict(survey.reading)
    if files:
        if odd := next((file for file in files if readable(file) != file), ""):
            raise DataError(
                f"{odd}: the name is not UTF-8, so no list of pictures can name it. Rename it, e.g. with convmv, or "
                "leave --copy out."
            )
        names = [classes[i] if classes else i for i in records["label"]]
        lines = [f"{fs.absolute(file)}\t{name}\n" for file, name in zip(files, names, strict=True)]
        odd = next((file for file, line in zip(files, lines, strict=True) if re.search(r"[\r\n].|\t.*\t", line)), "")
        if odd:
            said = "a list of pictures has a name in each line, and a tab behind it. Rename it, or leave --copy out."
            raise DataError(f"{odd!r}: {said}")
        backend, suffix, how = "image-list", ".txt", f"{how}, a list of pictures"
        reading |= {"user_conf": {"classes": list(classes)}} if classes else {}
    else:
        backend, suffix, how = "arrow", ".arrow", f"{how}, a copy, {n_bytes / 1e6:.1f} MB in all"
        # images in the copy have their final size, so the job keeps no option of the data except the name of the label
        label = reading.get("user_conf", {}).get("label")
        reading = {"layout": reading.get("layout"), "user_conf": label and {"label": label}}

    def write(url: str, rows: Rows) -> None:
        if files:
            fs.write_atomic(url, "".join(lines[row] for row in rows))
            return
        facts = closed.table_facts.to_dict() if closed.table_facts else None
        keys = ArrowStore.naming_options(classes, facts)
        ArrowStore.write(url, {name: values[rows] for name, values in records.items()}, **keys)

    largest = _largest(records["label"][test])
    survey = replace(
        survey, backend=backend, largest=largest, reading={key: value for key, value in reading.items() if value}
    )
    return with_split(survey, folder, suffix, (train, test, how), write)


def count_test(
    test_url: str, backend: str, reading: Mapping[str, Any], facts: TableFacts | None, url: str, output: OutputSurvey
) -> tuple[int, int, float]:
    """Return how many records of a test set are used and left out, and the share of the largest class.

    The share is 0 if the labels are not read.

    Raises
    ------
    DataError
        The test set has other columns, categories or classes than the training set, or a value that cannot be read.
    """
    with open_store(test_url, backend, **reading) as store:
        label_table(test_url, store.class_names, output.names, "training")
        found = list[npt.NDArray[Any]]()
        for block in range(len(store.blocks) if facts or store.reads_labels_alone else 0):
            labels = store.read_block(block).get("label") if facts else store.read_labels(block)
            if labels is None or labels.ndim > 1:
                continue
            found.append(labels)
            n, high = len(output.counts), labels.max(initial=0)
            if output.is_label and not output.names and high >= n:
                raise DataError(f"{test_url}: label {high}. Expected labels from 0 to {n - 1}, as in {url}.")
        difference = store.table_facts.compare(facts) if facts and store.table_facts else ""
        if difference:
            raise DataError(f"{test_url}: {difference} in {url}. Expected the same columns in the same order.")
        is_known = output.is_label and any(len(each) for each in found)
        largest = _largest(np.concatenate(found)) if is_known else 0.0
        return store.count, store.left_out, largest
