"""NumpyElementwise: elementwise arithmetic and activations with their gradients, in NumPy."""

from __future__ import annotations

import numpy as np

from singa_dask.arrays import Array
from singa_dask.ops.formulas import Formula, evaluate
from singa_dask.ops.numpy.memory import NumpyMemory
from singa_dask.ops.numpy.normal import normal_cdf, normal_density

# Constants of STanh in SINGA's src/utils/math_blob.h: y = STANH_Y * tanh(STANH_X * x).
STANH_Y = 1.7159047
STANH_X = 0.66666667
# Constants of the approximate GELU: P(x) = (1 + tanh(GELU_X (x + GELU_CUBE x^3))) / 2.
GELU_X = (2 / np.pi) ** 0.5
GELU_CUBE = 0.044715
# Number of values per piece in kernels with many temporary arrays.
SMALL_PIECE = 1 << 14


class NumpyElementwise(NumpyMemory):
    """Elementwise kernels on arrays of one shape; ``out`` may be one of the inputs."""

    # -- arithmetic --------------------------------------------------------------------------------------

    def add(self, x: Array, y: Array, out: Array) -> None:
        """``out = x + y``."""
        np.add(x, y, out=out)

    def add_relu(self, x: Array, y: Array, out: Array) -> None:
        """``out = relu(x + y)``."""
        self.add(x, y, out=out)
        self.relu(out, out=out)

    def subtract(self, x: Array, y: Array, out: Array) -> None:
        """``out = x - y``."""
        np.subtract(x, y, out=out)

    def multiply(self, x: Array, y: Array | float, out: Array) -> None:
        """``out = x * y`` for an array or a number ``y``."""
        np.multiply(x, y, out=out)

    def scale_rows(self, x: Array, factors: Array, out: Array) -> None:
        """``out = x * factors`` for ``x`` (N, D) and a factor for each row, (N,); ``out`` may be ``x``."""
        np.multiply(x, factors[:, None], out=out)

    def sum_squares(self, x: Array, weights: Array | None = None) -> float:
        """Return the sum of squares, each multiplied by the weight of its row if there are ``weights`` (N,)."""
        return float(np.vdot(x, x) if weights is None else np.vdot(np.einsum("nd,nd->n", x, x), weights))

    def normalize(self, x: Array, mean: Array | float | None, std: Array | float | None, out: Array) -> None:
        """``out = (x - mean) / std``, converted from the dtype of the records in the same pass.

        Parameters
        ----------
        x : (N, ...) uint8 or float
            May be a host array.
        mean, std : broadcast against one record, or None
            If ``mean`` is None, nothing is subtracted; if ``std`` is None, nothing is divided.
        out : (N, ...) float
        """
        for target, source in self.pieces(out, x):
            if mean is None:
                np.copyto(target, source, casting="unsafe")
            else:
                np.subtract(source, mean, out=target, dtype=target.dtype, casting="unsafe")
            if std is not None:
                np.divide(target, std, out=target)

    # -- activations -------------------------------------------------------------------------------------

    def relu(self, x: Array, out: Array, negative_slope: float = 0.0) -> None:
        """``out = x`` where positive, else ``negative_slope * x``; the slope is in [0, 1]."""
        if not negative_slope:
            np.maximum(x, 0, out=out)
            return
        for source, y in self.pieces(x, out):
            below = self.scratch("slope", y.shape, y.dtype)
            np.multiply(source, negative_slope, out=below)
            np.maximum(source, below, out=y)

    def relu_grad(self, y: Array, gy: Array, out: Array, negative_slope: float = 0.0) -> None:
        """``out = gy`` where ``y > 0``, else ``negative_slope * gy``."""
        for value, g, gx in self.pieces(y, gy, out):
            slope = self.scratch("slope", g.shape, g.dtype)
            np.greater(value, 0, out=slope)
            if negative_slope:
                np.maximum(slope, negative_slope, out=slope)
            np.multiply(g, slope, out=gx)

    def add_relu_grad(self, y: Array, gy: Array, more: Array, out: Array) -> None:
        """``out = gy + more`` where ``y > 0``, else 0."""
        self.add(gy, more, out=out)
        self.relu_grad(y, out, out=out)

    def sigmoid(self, x: Array, out: Array) -> None:
        """``out = 1 / (1 + exp(-x))``."""
        for source, y in self.pieces(x, out):
            np.multiply(source, 0.5, out=y)
            np.tanh(y, out=y)
            np.multiply(y, 0.5, out=y)
            np.add(y, 0.5, out=y)

    def sigmoid_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy y (1 - y)``."""
        for value, g, gx in self.pieces(y, gy, out):
            slope = self.scratch("slope", g.shape, g.dtype)
            np.subtract(1, value, out=slope)
            np.multiply(slope, value, out=slope)
            np.multiply(slope, g, out=gx)

    def tanh(self, x: Array, out: Array) -> None:
        """``out = tanh(x)``."""
        np.tanh(x, out=out)

    def tanh_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy (1 - y^2)``."""
        for value, g, gx in self.pieces(y, gy, out):
            slope = self.scratch("slope", g.shape, g.dtype)
            np.multiply(value, value, out=slope)
            np.subtract(1, slope, out=slope)
            np.multiply(slope, g, out=gx)

    def stanh(self, x: Array, out: Array) -> None:
        """``out = 1.7159047 tanh(0.66666667 x)``, LeCun's scaled tanh."""
        for source, y in self.pieces(x, out):
            np.multiply(source, STANH_X, out=y)
            np.tanh(y, out=y)
            np.multiply(y, STANH_Y, out=y)

    def stanh_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy (0.66666667 * 1.7159047 - 0.66666667 / 1.7159047 * y^2)``."""
        for value, g, gx in self.pieces(y, gy, out):
            slope = self.scratch("slope", g.shape, g.dtype)
            np.multiply(value, -STANH_X / STANH_Y, out=slope)
            np.multiply(slope, value, out=slope)
            np.add(slope, STANH_X * STANH_Y, out=slope)
            np.multiply(slope, g, out=gx)

    # -- activations with gradients from the input ---------------------------------------------------------

    def gelu(self, x: Array, out: Array, approximate: bool = False) -> None:
        """``out = x P(x)``, the Gaussian error linear unit of Hendrycks and Gimpel (2016).

        ``P(x) = (1 + erf(x / sqrt(2))) / 2``, the distribution function of the standard normal distribution, or if
        ``approximate`` ``(1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2``.
        """
        for source, y in self.pieces(x, out, n_values=SMALL_PIECE):
            np.multiply(source, self._tanh_cdf(source) if approximate else normal_cdf(source), out=y)

    def gelu_grad(self, x: Array, gy: Array, out: Array, approximate: bool = False) -> None:
        """``out = gy (P(x) + x P'(x))`` with P as in `gelu`."""
        for source, g, gx in self.pieces(x, gy, out, n_values=SMALL_PIECE):
            if approximate:
                slope = self._tanh_cdf(source)
                # P is the approximate CDF, so tanh = 2 P - 1, and its slope is 4 P (1 - P)
                inner = GELU_X * (1 + 3 * GELU_CUBE * source * source)
                slope += 2 * source * slope * (1 - slope) * inner
            else:
                slope = normal_cdf(source)
                slope += source * normal_density(source)
            np.multiply(slope, g, out=gx)

    def _tanh_cdf(self, x: Array) -> Array:
        """Return P of the approximate GELU."""
        cdf = np.multiply(x, x)
        np.multiply(cdf, GELU_CUBE, out=cdf)
        np.add(cdf, 1, out=cdf)
        np.multiply(cdf, x, out=cdf)
        np.multiply(cdf, GELU_X, out=cdf)
        np.tanh(cdf, out=cdf)
        np.multiply(cdf, 0.5, out=cdf)
        return np.add(cdf, 0.5, out=cdf)

    def silu(self, x: Array, out: Array) -> None:
        """``out = x sigmoid(x)``, also known as swish."""
        for source, y in self.pieces(x, out):
            np.multiply(source, self._logistic(source), out=y)

    def silu_grad(self, x: Array, gy: Array, out: Array) -> None:
        """``out = gy s (1 + x (1 - s))`` with ``s = sigmoid(x)``."""
        for source, g, gx in self.pieces(x, gy, out):
            logistic = self._logistic(source)
            slope = self.scratch("silu slope", source.shape, source.dtype)
            np.subtract(1, logistic, out=slope)
            np.multiply(slope, source, out=slope)
            np.add(slope, 1, out=slope)
            np.multiply(slope, logistic, out=slope)
            np.multiply(slope, g, out=gx)

    # -- formulas ----------------------------------------------------------------------------------------

    def elementwise(self, x: Array, out: Array, formula: Formula) -> None:
        """``out = f(x)`` by a formula; the absolute error may be eps, even if f(x) is much smaller than 1."""
        for source, y in self.pieces(x, out, n_values=SMALL_PIECE):
            y[...] = evaluate(formula.forward, {"x": source})

    def elementwise_grad(self, x: Array, gy: Array, out: Array, formula: Formula) -> None:
        """``out = gy f'(x)`` by a formula."""
        for source, g, gx in self.pieces(x, gy, out, n_values=SMALL_PIECE):
            gx[...] = evaluate(formula.backward, {"x": source, "gy": g})

    def _logistic(self, x: Array) -> Array:
        """Return sigmoid(x), in scratch memory."""
        y = self.scratch("slope", x.shape, x.dtype)
        NumpyElementwise.sigmoid(self, x, y)
        return y
