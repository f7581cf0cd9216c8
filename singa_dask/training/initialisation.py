"""Initial values of params: functions of the job's seed and the param's name, the same in every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.conf import InitConf, JobConf, ParamConf
from singa_dask.errors import ConfigError, Problem
from singa_dask.net import NeuralNet, whole_params
from singa_dask.ops import philox
from singa_dask.training.initialisers import INITIALISERS

__all__ = ["check_initialisers", "initial_values", "with_initialisers"]

Array = np.ndarray[Any, Any]


def initial_values(conf: InitConf, param_name: str, shape: Sequence[int], seed: int, dtype: Any = np.float32) -> Array:
    """Return the initial values of a param.

    Parameters
    ----------
    conf : InitConf
    param_name : str
    shape : sequence of int
        Of the whole param, however it is cut into slices later.
    seed : int
        The job's.
    dtype : dtype
        Drawn in float32 for every precision, so that float64 starts from the same net.

    Returns
    -------
    ndarray, shape ``shape``, C-contiguous
    """
    drawn = INITIALISERS.find(conf.type)(conf).fill(philox.generator((seed, "init", param_name)), tuple(shape))
    return np.ascontiguousarray(drawn, dtype)


def check_initialisers(net: NeuralNet) -> None:
    """Check that initialisers and params fit each other, before anything starts.

    Raises
    ------
    ConfigError
        An initialiser is unknown, or needs a matrix where the param is none; all at once.
    """
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
    """Return the job with an ``init`` for each param of the training net that has none: what its layer says.

    A param that uses the values of another one needs none.
    """
    layers = list(job.neuralnet.layer)
    for layer, index in net.layers_of_job():
        params = list(layers[index].param)
        params += [ParamConf()] * (len(layer.params) - len(params))
        for k, param in enumerate(layer.params):
            if params[k].init is None and param.owner is param:
                params[k] = params[k].model_copy(update={"init": param.conf.init or param.initial})
        layers[index] = layers[index].model_copy(update={"param": params})
    return job.model_copy(update={"neuralnet": job.neuralnet.model_copy(update={"layer": layers})})
