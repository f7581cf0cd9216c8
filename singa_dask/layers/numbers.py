"""Numbers: the base of layers that read integers, such as the numbers of words."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import Layer
from singa_dask.layers.traits import Speed, Traits
from singa_dask.ops.contract import Array


class Numbers(Layer):
    """Base of layers that read integers, such as the numbers of words.

    If the source is not unrolled, each time step reads its own column of the source. If the source has a single column,
    all time steps read this column. A layer that is not unrolled reads one column, or all columns if its class sets
    ``reads_columns``.
    """

    traits = Traits(steps="columns")
    speed = Speed(time_foldable=True, capturable=True, reads_on_host=True)
    ahead: ClassVar[int] = 0
    reads_columns: ClassVar[bool] = False

    def setup(self) -> None:
        source, site = self.sources[0], self.site
        is_copy = self.name.startswith(f"{site.first_step}#")
        several = source.size > 1 or self.ahead > 0
        self.all_columns = self.reads_columns and several and source.n_steps == site.n_steps == 1 and not is_copy
        self.own_columns = several and source.n_steps == 1 and not self.all_columns
        if several and source.n_steps > 1:
            message = f"a source of {source.n_steps} time steps must have one number in each row, got {source.size}."
            raise ConfigError(Problem(("srclayers", 0), message))
        if self.own_columns:
            self._check_columns(source.size, is_copy)
        self.n_numbers = source.shape[0] * site.n_steps // source.n_steps
        if self.all_columns:
            self.n_numbers *= source.size

    def _check_columns(self, n_columns: int, is_copy: bool) -> None:
        """Raise ConfigError if the source has too few or too many columns for the time steps."""
        n_steps, last = self.site.n_steps, self.site.first_step + self.site.n_steps + self.ahead
        if n_columns < last:
            message = f"expected {last} columns or more, {n_steps} time steps from {self.site.first_step} on"
            message += f", with labels, got {n_columns}." if self.ahead else f", got {n_columns}."
            raise ConfigError(Problem(("srclayers", 0), message))
        # an additional column is allowed: the label of the last time step
        if not is_copy and not self.ahead and n_columns > last + (last > 1):
            steps = "1 time step" if last == 1 else f"{last} time steps"
            message = f"{self.conf.srclayers[0]!r} has {n_columns} numbers in each record, but {self.conf.type} reads "
            message += f"{last}, for {steps}. Set unroll_len: {n_columns}, or shorten the records."
            raise ConfigError(Problem(("unroll_len",), message))

    def numbers(self) -> Array:
        """Return the numbers of all rows, (rows,) int64. The rows of the first time step come first."""
        data = self.ops.to_host(self.rows())
        if self.own_columns:
            first = self.site.first_step + self.ahead
            return data[:, first : first + self.site.n_steps].T.astype(np.int64).reshape(-1)
        numbers: Array = data.reshape(-1).astype(np.int64)
        is_shared = self.sources[0].n_steps == 1 < self.site.n_steps
        return np.tile(numbers, self.site.n_steps) if is_shared else numbers

    def check(self, numbers: Array, least: int, n: int) -> None:
        """Raise DataError unless all numbers are in [``least``, ``n``)."""
        if numbers.min() < least or numbers.max() >= n:
            wrong = numbers[(numbers < least) | (numbers >= n)][0]
            raise self.data_error(
                f"{wrong} is out of range. Numbers from {self.conf.srclayers[0]!r} must be "
                f"{least} to {n - 1}, as vocab_size is {n}.",
            )
