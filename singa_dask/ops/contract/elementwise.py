"""Elementwise: kernels that compute value by value: arithmetic, activations and their gradients."""

from __future__ import annotations

from typing import Protocol

from singa_dask.ops.contract.device import Array, Scalar


class Elementwise(Protocol):
    """Kernels that compute value by value; ``out`` may be any of the inputs, all of one shape."""

    # -- arithmetic ----------------------------------------------------------------------------------------

    def add(self, x: Array, y: Array, out: Array) -> None:
        """``out = x + y``."""

    def add_relu(self, x: Array, y: Array, out: Array) -> None:
        """``out = relu(x + y)``."""

    def subtract(self, x: Array, y: Array, out: Array) -> None:
        """``out = x - y``."""

    def multiply(self, x: Array, y: Array | float, out: Array) -> None:
        """``out = x * y`` for an array or a number ``y``."""

    def scale_rows(self, x: Array, factors: Array, out: Array) -> None:
        """``out = x * factors``, (N, D) by a factor for each row, (N,); ``out`` may be ``x``."""

    def sum_squares(self, x: Array, weights: Array | None = None) -> Scalar:
        """Return the sum of the squares of all values; each times the weight of its row, (N,), if there are weights."""

    def normalize(self, x: Array, mean: Array | float | None, std: Array | float | None, out: Array) -> None:
        """``out = (x - mean) / std``, converted from the dtype of the records in the same pass.

        Parameters
        ----------
        x : (N, ...) uint8 or float
            May be a host array.
        mean, std : broadcast against one record, or None
            Steps with None are skipped.
        out : (N, ...) float
        """

    # -- activations; gradients from the output ``y`` --------------------------------------------------------

    def relu(self, x: Array, out: Array, negative_slope: float = 0.0) -> None:
        """``out = x`` where positive, else ``negative_slope * x``; the slope is in [0, 1]."""

    def relu_grad(self, y: Array, gy: Array, out: Array, negative_slope: float = 0.0) -> None:
        """``out = gy`` where ``y > 0``, else ``negative_slope * gy``."""

    def add_relu_grad(self, y: Array, gy: Array, more: Array, out: Array) -> None:
        """``out = gy + more`` where ``y > 0``, else 0."""

    def sigmoid(self, x: Array, out: Array) -> None:
        """``out = 1 / (1 + exp(-x))``."""

    def sigmoid_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy y (1 - y)``."""

    def tanh(self, x: Array, out: Array) -> None:
        """``out = tanh(x)``."""

    def tanh_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy (1 - y^2)``."""

    def stanh(self, x: Array, out: Array) -> None:
        """``out = 1.7159047 tanh(0.66666667 x)``, LeCun's scaled tanh."""

    def stanh_grad(self, y: Array, gy: Array, out: Array) -> None:
        """``out = gy (0.66666667 * 1.7159047 - 0.66666667 / 1.7159047 * y^2)``."""

    # -- activations; gradients from the input ``x`` ---------------------------------------------------------

    def gelu(self, x: Array, out: Array, approximate: bool = False) -> None:
        """``out = x P(x)``, the Gaussian error linear unit of Hendrycks and Gimpel (2016).

        ``P(x) = (1 + erf(x / sqrt(2))) / 2``, the distribution function of the standard normal distribution, or if
        ``approximate`` ``(1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2``.
        """

    def gelu_grad(self, x: Array, gy: Array, out: Array, approximate: bool = False) -> None:
        """``out = gy (P(x) + x P'(x))`` with P as in `gelu`."""

    def silu(self, x: Array, out: Array) -> None:
        """``out = x sigmoid(x)``, also known as swish."""

    def silu_grad(self, x: Array, gy: Array, out: Array) -> None:
        """``out = gy s (1 + x (1 - s))`` with ``s = sigmoid(x)``."""
