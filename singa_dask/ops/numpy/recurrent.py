"""NumpyRecurrent: time steps of recurrent layers, and rows of tables, in NumPy."""

from __future__ import annotations

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops.numpy.elementwise import NumpyElementwise
from singa_dask.ops.numpy.memory import PIECE_VALUES

# Number of gate values per piece of a time step.
GATE_VALUES = 1 << 17
# Wider rows are summed one by one, because NumPy's `reduceat` sums along columns, which misses the caches.
WIDE_ROW = 128


class NumpyRecurrent(NumpyElementwise):
    """Kernels on one time step of ``N`` rows and states of ``D`` units, and on rows of a table (V, D).

    The layer computes the matrix products. A step takes ``xw``, the products with the input plus biases, and ``hu``,
    the products with the previous state. Both have the gates side by side in columns. The values of a row are
    contiguous.
    """

    # -- rows of a table -------------------------------------------------------------------------------

    def row_index(self, values: Array, n_rows: int, before: Array | None = None) -> Array:
        """Return an index of rows in the form that `take_rows` and `add_rows` read fastest.

        The host can still read the index. With ``before``, the index stays in the same memory for all batches, so
        that kernels that read it can be captured.

        Parameters
        ----------
        values : (N,) integers less than ``n_rows``
        n_rows : int
            Rows of the table.
        before : array, optional
            The result for the previous batch, to reuse its memory.
        """
        if before is None or before.shape != values.shape or before.dtype != values.dtype:
            return values.copy()
        np.copyto(before, values)
        return before

    def take_rows(self, table: Array, index: Array, out: Array) -> None:
        """``out[n] = table[index[n]]``, zeros where the index is negative.

        Parameters
        ----------
        table : (V, D)
        index : (N,) integers less than V, of the host or the device
        out : (N, D)
        """
        if out.flags.c_contiguous:
            np.take(table, index, axis=0, out=out, mode="clip")
        else:
            out[...] = table[np.maximum(index, 0)]
        absent = index < 0
        if absent.any():
            out[absent] = 0

    def add_rows(self, gy: Array, index: Array, out: Array, accumulate: bool = False) -> None:
        """``out[v]`` = sum of the rows of ``gy`` (N, D) whose index is v; added to ``out`` (V, D) if ``accumulate``.

        Rows with a negative index are skipped.
        """
        if not accumulate:
            out[...] = 0
        order = np.argsort(index, kind="stable")
        places = index.take(order)
        present = places.searchsorted(0)
        order, places = order[present:], places[present:]
        if len(order):
            is_first = np.ones(len(places), bool)
            np.not_equal(places[1:], places[:-1], out=is_first[1:])
            starts = is_first.nonzero()[0]
            if gy.shape[1] < WIDE_ROW:
                out[places.take(starts)] += np.add.reduceat(gy.take(order, axis=0), starts, axis=0)
                return
            n_rows = max(1, PIECE_VALUES // gy.shape[1])
            ends = [*starts[1:].tolist(), len(order)]
            for place, start, end in zip(places.take(starts).tolist(), starts.tolist(), ends, strict=True):
                for k in range(start, end, n_rows):
                    out[place] += np.add.reduce(gy[order[k : min(k + n_rows, end)]], axis=0)

    def one_hot(self, index: Array, out: Array) -> None:
        """``out`` (N, V) = 1 at ``index[n]`` of row n, else 0; all 0 if the index is negative."""
        out[...] = 0
        present = np.flatnonzero(index >= 0)
        out[present, index[present]] = 1

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
        d = h.shape[1]
        for kept, x, u, old, new in self.pieces(gates, xw, hu, h, out, n_values=GATE_VALUES):
            zr, c = (self.scratch(name, (k, *old.shape), old.dtype) for name, k in (("gates", 2), ("candidate", 1)))
            np.add(apart(x[:, d:], d), apart(u[:, : 2 * d], d), out=zr)
            self.sigmoid(zr, out=zr)
            np.multiply(zr[1], u[:, 2 * d :], out=c[0])
            np.add(c[0], x[:, :d], out=c[0])
            np.tanh(c, out=c)
            np.subtract(old, c[0], out=new)
            np.multiply(new, zr[0], out=new)
            np.add(new, c[0], out=new)
            np.copyto(kept[:, :d], c[0])
            np.copyto(apart(kept[:, d : 3 * d], d), zr)
            np.copyto(kept[:, 3 * d :], u[:, 2 * d :])

    def gru_step_grad(self, gates: Array, h: Array, gy: Array, gh: Array) -> None:
        """Compute the gradients of `gru_step`, in place.

        Parameters
        ----------
        gates : (N, 4 D)
            As `gru_step` wrote it. Written: gradients, of ``xw`` in the first 3 D columns, of ``hu`` in the last 3 D.
        h : (N, D)
            State before the step.
        gy, gh : (N, D)
            Their sum is the gradient of ``out``. Written to ``gh``: the gradient of ``h``, except through ``hu``.
        """
        d = h.shape[1]
        for kept, old, g, back in self.pieces(gates, h, gy, gh, n_values=GATE_VALUES):
            c, z, r, product = self._apart(kept, d)
            slope, work = self.scratch("slopes", (2, *old.shape), old.dtype)
            np.add(back, g, out=back)
            np.subtract(1, z, out=slope)
            np.multiply(slope, back, out=slope)
            np.multiply(back, z, out=back)
            np.subtract(old, c, out=work)
            np.multiply(work, slope, out=work)
            np.multiply(work, z, out=kept[:, d : 2 * d])
            np.multiply(c, c, out=c)
            np.subtract(1, c, out=c)
            np.multiply(c, slope, out=c)
            np.subtract(1, r, out=slope)
            np.multiply(slope, product, out=slope)
            np.multiply(r, c, out=r)
            np.multiply(r, slope, out=kept[:, 2 * d : 3 * d])
            np.copyto(kept[:, :d], c)
            np.copyto(kept[:, 3 * d :], r)

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
        d = c.shape[1]
        for kept, x, u, old, new, cell in self.pieces(gates, xw, hu, c, out, out_c, n_values=GATE_VALUES):
            every = self.scratch("gates", (4, *old.shape), old.dtype)
            i, f, o, g = every
            np.add(apart(x, d), apart(u, d), out=every)
            self.sigmoid(every[:3], out=every[:3])
            np.tanh(g, out=g)
            np.multiply(f, old, out=cell)
            np.multiply(i, g, out=new)
            np.add(cell, new, out=cell)
            np.tanh(cell, out=new)
            np.multiply(new, o, out=new)
            np.copyto(apart(kept, d), every)

    def lstm_step_grad(self, gates: Array, c: Array, out_c: Array, gy: Array, gh: Array, gc: Array) -> None:
        """Compute the gradients of `lstm_step`, in place.

        Parameters
        ----------
        gates : (N, 4 D)
            As `lstm_step` wrote it. Written: the gradients of ``xw``, equal to the gradients of ``hu``.
        c, out_c : (N, D)
            Cell before and after the step.
        gy, gh : (N, D)
            Their sum is the gradient of ``out``. ``gh`` is overwritten with arbitrary values.
        gc : (N, D)
            Gradient of ``out_c``. Written: the gradient of ``c``.
        """
        d = c.shape[1]
        for kept, old, new, g_out, back, cell in self.pieces(gates, c, out_c, gy, gh, gc, n_values=GATE_VALUES):
            i, f, o, g = self._apart(kept, d)
            a, b = self.scratch("slopes", (2, *old.shape), old.dtype)
            np.add(back, g_out, out=back)
            np.tanh(new, out=b)
            np.multiply(back, o, out=a)
            np.multiply(back, b, out=back)
            np.multiply(b, b, out=b)
            np.subtract(1, b, out=b)
            np.multiply(b, a, out=b)
            np.add(cell, b, out=cell)
            through_logistic(o, back, out=kept[:, 2 * d : 3 * d])
            np.multiply(cell, i, out=a)
            np.multiply(cell, g, out=b)
            through_logistic(i, b, out=kept[:, :d])
            np.multiply(g, g, out=g)
            np.subtract(1, g, out=g)
            np.multiply(g, a, out=kept[:, 3 * d :])
            np.multiply(cell, old, out=a)
            np.multiply(cell, f, out=cell)
            through_logistic(f, a, out=kept[:, d : 2 * d])

    def _apart(self, gates: Array, d: int) -> Array:
        """Return a copy of gates as contiguous arrays, because operations on columns take twice as long."""
        copy = self.scratch("gates", (gates.shape[1] // d, len(gates), d), gates.dtype)
        np.copyto(copy, apart(gates, d))
        return copy


def apart(gates: Array, d: int) -> Array:
    """Return a view (gates, N, d) of gates that are side by side in columns."""
    return gates.reshape(len(gates), -1, d).transpose(1, 0, 2)


def through_logistic(y: Array, gy: Array, out: Array) -> None:
    """``out = gy y (1 - y)``, the gradient through a logistic function whose value is y; overwrites ``gy`` and y."""
    np.multiply(gy, y, out=gy)
    np.subtract(1, y, out=y)
    np.multiply(gy, y, out=out)
