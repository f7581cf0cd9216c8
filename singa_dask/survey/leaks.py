"""Find leaks: features that determine the label alone, and ids in both training and test set.

The value of such a feature is often unknown when the net predicts.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from singa_dask.data.tables.column_values import as_floats, as_texts, missing_of
from singa_dask.survey.column_kinds import ID
from singa_dask.survey.columns import ColumnSurvey, codes_of
from singa_dask.survey.results import Baseline, OutputSurvey, Rows
from singa_dask.survey.table_survey import TableSurvey
from singa_dask.wording import listed, quoted

# Only MAX_RECORDS records are compared. A feature may determine the label by chance if there are fewer than MIN_RECORDS
# records, or fewer than MIN_OTHERS records outside the largest class.
MAX_RECORDS, MIN_RECORDS, MIN_OTHERS = 10_000, 50, 10
# in tables with more features, some features determine the label by chance
MAX_FEATURES = 2_000
# a feature gives away the classes if it is wrong for at most this share of the records outside the largest class
MAX_WRONG = 0.01
# a feature gives away a target if at most this share of the variance of the target remains unexplained
MAX_LEFT = 1e-4
# maximum probability that values found in one class only are a coincidence
CHANCE = 1e-6
# unusual values of one class are a leak only if at least this share of the records of the class has them
OFTEN = 0.25
MAX_SHOWN = 6
# a column is checked for repeated ids if each id has MIN_REPEATED records on average; records of an id are alike if
# they differ less than UNLIKE times as much as random records
MIN_REPEATED, UNLIKE = 2, 0.5

Codes = npt.NDArray[np.int64]


def leak_warnings(
    table: TableSurvey, features: Sequence[ColumnSurvey], outputs: Sequence[OutputSurvey], rows: Rows
) -> Iterator[str]:
    """Yield warnings about features that determine a label or target alone, judged on some labelled rows."""
    rows = rows[np.linspace(0, len(rows) - 1, min(MAX_RECORDS, len(rows))).astype(np.int64)]
    if len(rows) < MIN_RECORDS or len(features) > MAX_FEATURES:
        return
    for output in outputs:
        values = table.named[output.name].values.take(rows)
        reason = _reasons_of_label(output, values) if output.is_label else _reasons_of_target(output, values)
        found = dict[str, list[str]]()
        for each in features:
            if each.kind != "vector" and (why := reason(each, each.values.take(rows))):
                found.setdefault(why, []).append(each.name)
        for why, names in found.items():
            drop = f"Pass --drop {shlex.quote(','.join(names))}"
            unless = "it is" if len(names) == 1 else "they are"
            yield f"{listed(names, MAX_SHOWN)}: {why}. {drop} unless {unless} known when you predict"


def shared_id_warnings(table: TableSurvey, outputs: Sequence[OutputSurvey], train: Rows, test: Rows) -> Iterator[str]:
    """Yield a warning about each id with records in both parts that mostly have the same label or target."""
    # if all test records come after the training records, an id in both is no leak
    if not len(test) or train.max() < test.min():
        return
    rows = np.concatenate([train, test])
    output = outputs[0]
    targets = table.named[output.name].values.take(rows)
    for each in table.columns:
        if not ID.fullmatch(each.name) or each.kind not in ("number", "string") or each.name == output.name:
            continue
        ids = _codes_in_order(each.kind, each.values.take(rows))
        n_ids = int(ids.max()) + 1
        are_shared = np.isin(ids[len(train) :], ids[: len(train)]).mean() > 0.5
        if MIN_REPEATED * n_ids <= len(rows) and are_shared and _are_alike(output, ids, targets):
            yield (
                f"{each.name}: {n_ids} values in {len(rows)} records, and most records of a value have the same "
                f"{output.name}. The test set has other records of values that the net learns. Pass --split-by "
                f"{shlex.quote(each.name)} to test on other values"
            )


def _are_alike(output: OutputSurvey, ids: Codes, targets: pa.Array) -> bool:
    """Return whether records of the same id differ much less in a label or target than random records."""
    if output.is_label:
        classes = codes_of(targets, "encode")
        n_classes = int(classes.max()) + 1

        def unlike(labels: Codes) -> float:
            counts = np.bincount(ids * n_classes + labels, minlength=(ids.max() + 1) * n_classes)
            return float(1 - counts.reshape(-1, n_classes).max(axis=1).sum() / len(ids))

        return unlike(classes) < UNLIKE * unlike(np.random.default_rng(0).permutation(classes))
    numbers = as_floats(targets)
    sizes = np.bincount(ids)

    def spread(values: npt.NDArray[np.float64]) -> float:
        means = np.bincount(ids, values) / np.maximum(sizes, 1)
        return float(((values - means[ids]) ** 2).sum())

    return spread(numbers) < UNLIKE * spread(np.random.default_rng(0).permutation(numbers))


def exact_warnings(baseline: Baseline | None, outputs: Sequence[OutputSurvey]) -> Iterator[str]:
    """Yield a warning if a linear model of several features predicts the targets without an error."""
    if baseline and baseline.linear > 1 - MAX_LEFT and not outputs[0].is_label:
        names = listed([each.name for each in outputs])
        said = "a linear formula of the features, nearly without an error"
        yield f"{names}: {said}. Pass --drop for features that are not known when you predict"


def _reasons_of_label(output: OutputSurvey, values: pa.Array) -> Callable[[ColumnSurvey, pa.Array], str]:
    """Return a function that describes how a feature gives away a label, as a text or an empty text."""
    classes, names = codes_of(values), pc.unique(as_texts(values)).to_pylist()
    shares = np.bincount(classes) / len(classes)
    n_others = len(classes) * (1 - shares.max())

    def reason(feature: ColumnSurvey, known: pa.Array) -> str:
        present = ~missing_of(known)
        codes = _codes_in_order(feature.kind, known)
        most = int(np.bincount(codes).argmax())
        usual = known[int(np.argmax(codes == most))].as_py()
        for chosen, what, least in ((present, "a value", 0.0), (codes != most, f"another value than {usual}", OFTEN)):
            found = classes[chosen]
            only = found[0] if len(found) else 0
            is_often = least * shares[only] * len(known) <= len(found) < len(known)
            if is_often and (found == only).all() and shares[only] ** len(found) < CHANCE:
                return f"{what} only if {output.name} is {quoted(names[only])}"
        if n_others < MIN_OTHERS or _n_wrong(feature, codes, classes) > MAX_WRONG * n_others:
            return ""
        return f"determines {output.name} alone, nearly without an error"

    return reason


def _codes_in_order(kind: str, values: pa.Array) -> Codes:
    """Return a code for each value.

    Codes of numbers are in ascending order. Missing values have a code, too.
    """
    present = ~missing_of(values)
    if kind == "number":
        return np.unique(np.where(present, as_floats(values), -np.inf), return_inverse=True)[1]
    return codes_of(pc.if_else(pa.array(present), as_texts(values), None), "encode")


def _n_wrong(feature: ColumnSurvey, codes: Codes, classes: Codes) -> float:
    """Return how many records the best rule that predicts the classes from one feature gets wrong.

    The rule assigns a class to each category, or to each interval of numbers. Missing values are a category. Each
    category with only one record counts as an error, and so does each interval beyond one per class.
    """
    pairs, counts = np.unique(codes * (classes.max() + 1) + classes, return_counts=True)
    order = np.lexsort((counts, pairs // (classes.max() + 1)))
    of_value, of_class = np.divmod(pairs[order], classes.max() + 1)
    # the last pair of each value has its most frequent class
    is_last = np.append(of_value[1:] != of_value[:-1], True)
    n_wrong = len(classes) - counts[order][is_last].sum()
    if feature.kind == "number":
        changes = np.count_nonzero(np.diff(of_class[is_last]))
        return float(n_wrong + max(changes - classes.max(), 0))
    return float(n_wrong + np.count_nonzero(np.bincount(codes) == 1))


def _reasons_of_target(output: OutputSurvey, values: pa.Array) -> Callable[[ColumnSurvey, pa.Array], str]:
    """Return a function that describes how a feature gives away a target, as a text or an empty text."""
    targets = as_floats(values)
    targets = targets - targets.mean()

    def reason(feature: ColumnSurvey, known: pa.Array) -> str:
        if feature.kind != "number":
            return ""
        numbers = as_floats(known)
        finite = np.isfinite(numbers)
        if np.count_nonzero(finite) < MIN_RECORDS:
            return ""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            explained = np.corrcoef(numbers[finite], targets[finite])[0, 1] ** 2
        return f"determines {output.name} alone, by a straight line" if 1 - explained < MAX_LEFT else ""

    return reason
