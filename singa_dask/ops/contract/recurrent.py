"""Recurrent: kernels on time steps of recurrent layers, and on rows of tables."""

from __future__ import annotations

from typing import Protocol

from singa_dask.ops.contract.device import Array


class Recurrent(Protocol):
    """Kernels on one time step of ``N`` rows and states of ``D`` units, and on rows of a table (V, D).

    A step is computed for N rows at once. The layer computes the matrix products: a step takes ``xw``, the part from
    the input with biases, and ``hu``, the part from the previous state, with the gates side by side in columns.
    The values of a row are contiguous.
    """

    # -- rows of a table -------------------------------------------------------------------------------

    def row_index(self, values: Array, n_rows: int, before: Array | None = None) -> Array:
        """Return an index of rows as `take_rows` and `add_rows` take it fastest, readable on the host as before.

        Kernels that take it can be captured: given ``before``, they read the same memory for each batch.

        Parameters
        ----------
        values : (N,) integers less than ``n_rows``
        n_rows : int
            Rows of the table.
        before : array, optional
            What this returned for the previous batch, for reuse.
        """

    def take_rows(self, table: Array, index: Array, out: Array) -> None:
        """``out[n] = table[index[n]]``, zeros where the index is negative.

        Parameters
        ----------
        table : (V, D)
        index : (N,) integers less than V, of the host or the device
        out : (N, D)
        """

    def add_rows(self, gy: Array, index: Array, out: Array, accumulate: bool = False) -> None:
        """``out[v]`` = sum of the rows of ``gy`` (N, D) whose index is v; added to ``out`` (V, D) if ``accumulate``.

        Rows with a negative index are skipped.
        """

    def one_hot(self, index: Array, out: Array) -> None:
        """``out`` (N, V) = 1 at ``index[n]`` of row n, else 0; a row with a negative index is all 0."""

    # -- gated recurrent units ---------------------------------------------------------------------------

    def gru_step(self, xw: Array, hu: Array, h: Array, out: Array, gates: Array) -> None:
        """``out = z h + (1 - z) c``.

        ``z = sigmoid(xw_z + hu_z)``, ``r = sigmoid(xw_r + hu_r)``, ``c = tanh(xw_c + r hu_c)``.

        Parameters
        ----------
        xw : (N, 3 D)
            In the order c, z, r; may be the first columns of ``gates``.
        hu : (N, 3 D)
            In the order z, r, c.
        h, out : (N, D)
            State before and after.
        gates : (N, 4 D)
            Written: c, z, r, hu_c.
        """

    def gru_step_grad(self, gates: Array, h: Array, gy: Array, gh: Array) -> None:
        """Compute the gradients of `gru_step`, in place.

        Parameters
        ----------
        gates : (N, 4 D)
            As `gru_step` left it; written: gradients, of ``xw`` in the first 3 D columns, of ``hu`` in the last 3 D.
        h : (N, D)
            State before the step.
        gy, gh : (N, D)
            Their sum is the gradient of ``out``. Written to ``gh``: the gradient of ``h`` without the part by ``hu``.
        """

    # -- long short-term memory --------------------------------------------------------------------------

    def lstm_step(self, xw: Array, hu: Array, c: Array, out: Array, out_c: Array, gates: Array) -> None:
        """``i, f, o = sigmoid(xw + hu)``, ``g = tanh(xw + hu)``, ``out_c = f c + i g``, ``out = o tanh(out_c)``.

        Parameters
        ----------
        xw, hu : (N, 4 D)
            In the order i, f, o, g; ``xw`` may be ``gates``.
        c, out_c : (N, D)
            Cell before and after.
        out : (N, D)
            State after.
        gates : (N, 4 D)
            Written: i, f, o, g.
        """

    def lstm_step_grad(self, gates: Array, c: Array, out_c: Array, gy: Array, gh: Array, gc: Array) -> None:
        """Compute the gradients of `lstm_step`, in place.

        Parameters
        ----------
        gates : (N, 4 D)
            As `lstm_step` left it; written: the gradients of ``xw``, which are also those of ``hu``.
        c, out_c : (N, D)
            Cell before and after the step.
        gy, gh : (N, D)
            Their sum is the gradient of ``out``. ``gh`` is overwritten with anything.
        gc : (N, D)
            Gradient of ``out_c``; written: that of ``c``.
        """
