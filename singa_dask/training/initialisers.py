"""Initialisers draw the initial values of params. After SINGA's src/utils/param.cc.

In formulas, "rows" and "columns" are numbers: a matrix has the shape (rows, columns), which is (outputs, inputs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.arrays import Array
from singa_dask.conf import InitConf, JobConf, ParamConf
from singa_dask.conf.parts import Part
from singa_dask.errors import ConfigError, Problem
from singa_dask.net import NeuralNet, whole_params
from singa_dask.ops import philox
from singa_dask.registry import Registry

INITIALISERS: Registry[Initialiser] = Registry("initialiser")


class Initialiser(Part):
    """Draws the initial values of one param.

    Parameters
    ----------
    conf : InitConf
        The block ``init`` of the param. Its ``user_conf`` has options of custom initialisers.

    Attributes
    ----------
    needs_matrix : bool
        Whether the initialiser works only for params with two axes.
    """

    needs_matrix = False

    def __init__(self, conf: InitConf) -> None:
        self.conf = conf

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Return floats of this shape. Use ``random`` as the only source of random numbers."""
        raise TypeError(f"{type(self).__name__} draws nothing: it has no fill()")


INITIALISERS.base = Initialiser


@INITIALISERS.register()
class Constant(Initialiser):
    """The number ``value`` everywhere."""

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.full(shape, self.conf.value)


@INITIALISERS.register()
class Gaussian(Initialiser):
    """``value`` times a normal draw with mean ``mean`` and standard deviation ``std``."""

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        values = random.standard_normal(shape, np.float32)
        values *= self.conf.std * self.conf.value
        values += self.conf.mean * self.conf.value
        return values


@INITIALISERS.register()
class GaussianSqrtFanIn(Gaussian):
    """A Gaussian draw divided by sqrt(columns)."""

    needs_matrix = True

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return super().fill(random, shape) * (1 / math.sqrt(shape[1]))


@INITIALISERS.register()
class Uniform(Initialiser):
    """``value`` times a uniform draw between ``low`` and ``high``."""

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        values = random.random(shape, np.float32)
        values *= (self.conf.high - self.conf.low) * self.conf.value
        values += self.conf.low * self.conf.value
        return values


@INITIALISERS.register()
class UniformSqrtFanIn(Uniform):
    """A Uniform draw multiplied by sqrt(3 / columns)."""

    needs_matrix = True

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return super().fill(random, shape) * math.sqrt(3 / shape[1])


@INITIALISERS.register()
class UniformSqrtFanInOut(Uniform):
    """A Uniform draw divided by sqrt(rows + columns).

    With ``low: -2.449`` and ``high: 2.449``, which is sqrt(6), it has the bounds of Glorot and Bengio (2010).
    """

    needs_matrix = True

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return super().fill(random, shape) * (1 / math.sqrt(shape[0] + shape[1]))


FFT_VALUES = 1 << 20
"""Number of values that are transformed at once. This takes 40 MB in addition to the result."""


@INITIALISERS.register()
class Orthogonal(Initialiser):
    """``value`` times a random matrix with orthonormal rows, or orthonormal columns if rows > columns.

    The matrix is computed by three rounds of random signs and a Hartley transform, after Yu et al. (2016), Orthogonal
    random features. The result has the same bits for any number of threads, which a QR decomposition does not
    guarantee.
    """

    needs_matrix = True

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        n, n_columns = max(shape), min(shape)
        signs = random.choice([-1.0, 1.0], (3, n, 1))
        columns = np.empty((n, n_columns))
        step = max(1, FFT_VALUES // n)
        for first in range(0, n_columns, step):  # each column is transformed independently
            values = np.eye(n, min(step, n_columns - first), -first)
            for sign in signs:
                transform = np.fft.fft(values * sign, axis=0)
                values = (transform.real - transform.imag) / math.sqrt(n)
            columns[:, first : first + step] = values
        return (columns if shape[0] >= shape[1] else columns.T) * self.conf.value


def initial_values(
    conf: InitConf | Array, param_name: str, shape: Sequence[int], seed: int, dtype: Any = np.float32
) -> Array:
    """Return the initial values of a param.

    Parameters
    ----------
    conf : InitConf or ndarray
        The distribution of the values, or the values themselves.
    shape : sequence of int
        Shape of the whole param. The values do not depend on how the param is sliced.
    seed : int
        The job's seed.
    dtype : dtype
        Data type of the result. Values are always drawn in float32, so that a job with float64 starts with the same
        values.

    Returns
    -------
    ndarray, shape ``shape``, C-contiguous
    """
    if not isinstance(conf, InitConf):
        return np.ascontiguousarray(conf, dtype).reshape(shape)
    drawn = INITIALISERS.find(conf.type)(conf).fill(philox.generator((seed, "init", param_name)), tuple(shape))
    return np.ascontiguousarray(drawn, dtype)


def check_initialisers(net: NeuralNet) -> None:
    """Raise a ConfigError that lists all initialisers that are unknown or need a matrix."""
    problems = []
    for param in whole_params(net.logical):
        if param.conf.init is None:
            continue
        kind = param.conf.init.type
        try:
            if INITIALISERS.find(kind).needs_matrix and len(param.shape) != 2:
                message = f"{kind} needs rows and columns, but {param.name!r} has shape {param.shape}."
                raise ConfigError(message)
        except ConfigError as error:
            problems.append(Problem((*net.param_path(param.name), "init", "type"), str(error)))
    if problems:
        raise ConfigError(problems)


def with_initialisers(job: JobConf, net: NeuralNet) -> JobConf:
    """Return the job with a default ``init`` for each param without one.

    The layer's class sets the default. A param that uses the values of another param needs no ``init``.
    """
    layers = list(job.neuralnet.layer)
    for layer, index in net.layers_of_job():
        params = list(layers[index].param)
        params += [ParamConf()] * (len(layer.params) - len(params))
        for k, param in enumerate(layer.params):
            init = param.conf.init or param.initial
            if params[k].init is None and param.owner is param and isinstance(init, InitConf):
                params[k] = params[k].model_copy(update={"init": init})
        layers[index] = layers[index].model_copy(update={"param": params})
    return job.with_layers(layers)
