"""FillCounts: counts of filled-in values, unknown categories, and percents that look like fractions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from singa_dask.data.tables.percents import Percents, percent_warnings
from singa_dask.shown import plural
from singa_dask.wording import listed, quoted


@dataclass(frozen=True)
class FillCounts:
    """Numbers of missing values that were filled in, and of categories that are unknown, by column.

    Attributes
    ----------
    filled : Counter of str
        Number of missing values that were filled in. A number is replaced by the mean or a constant, a category by
        zeros, a text by an unknown token.
    unknown : Counter of str
        Number of categories that do not occur in the training data. They are encoded as zeros.
    percents : dict of str to Percents
        Counts of plain numbers in percent columns, for `warnings`.
    """

    filled: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    percents: dict[str, Percents] = field(default_factory=dict)

    def add(self, other: FillCounts) -> None:
        """Add the counts of other records to these."""
        self.filled.update(other.filled)
        self.unknown.update(other.unknown)
        for name, each in other.percents.items():
            self.percents[name] = self.percents.get(name, Percents()).plus(each)

    @classmethod
    def total(cls, counts: Iterable[FillCounts]) -> FillCounts:
        """Return the sum of several counts."""
        total = cls()
        for each in counts:
            total.add(each)
        return total

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Return ``filled`` and ``unknown`` as dicts. Empty dicts are left out."""
        both = {"filled": dict(self.filled), "unknown": dict(self.unknown)}
        return {name: counts for name, counts in both.items() if counts}

    def warnings(self) -> list[str]:
        """Return a warning if all plain numbers of a percent column look like fractions; else []."""
        return percent_warnings(self.percents)

    def lines(self) -> list[str]:
        """Return a message if values were filled in, and a message if categories were unknown."""
        filled, unknown = (
            listed([f"{quoted(name)} {n}" for name, n in each.items()]) for each in (self.filled, self.unknown)
        )
        n_filled, n_unknown = self.filled.total(), self.unknown.total()
        said = f"encoded {plural(n_unknown, 'unknown category', 'unknown categories')} as zeros: column {unknown}"
        return [f"filled {plural(n_filled, 'value')}: column {filled}"] * (n_filled > 0) + [said] * (n_unknown > 0)
