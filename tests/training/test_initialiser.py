"""Initialisers: distributions, and values that follow from seed and name alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.conf import InitConf
from singa_dask.errors import ConfigError
from singa_dask.training import check_initialisers, initial_values
from tests.net.jobs import DATA, build, dense


def draw(kind: str, shape: tuple[int, ...] = (300, 400), name: str = "w", seed: int = 1, **conf: Any) -> Any:
    return initial_values(InitConf.model_validate({"type": kind, **conf}), name, shape, seed)


def test_constant() -> None:
    assert (draw("Constant", value=0.25) == 0.25).all()


@pytest.mark.parametrize(
    ("kind", "conf", "mean", "std"),
    [
        ("Gaussian", {"mean": 1.0, "std": 2.0, "value": 3.0}, 3.0, 6.0),
        ("GaussianSqrtFanIn", {"std": 2.0}, 0.0, 2.0 / 20),
        ("Uniform", {"low": -1.0, "high": 3.0, "value": 2.0}, 2.0, 8 / 12**0.5),
        ("UniformSqrtFanIn", {}, 0.0, 2 / 12**0.5 * 3**0.5 / 20),
        ("UniformSqrtFanInOut", {}, 0.0, 2 / 12**0.5 / 700**0.5),
    ],
)
def test_moments(kind: str, conf: dict[str, Any], mean: float, std: float) -> None:
    values = draw(kind, **conf)
    assert values.dtype == np.float32
    assert values.flags.c_contiguous
    assert values.mean() == pytest.approx(mean, abs=0.01 * std)
    assert values.std() == pytest.approx(std, rel=0.01)


def test_uniform_keeps_its_bounds() -> None:
    values = draw("Uniform", low=-0.05, high=0.05)
    assert -0.05 <= values.min() < -0.0499
    assert 0.0499 < values.max() <= 0.05


def test_values_follow_from_seed_and_name() -> None:
    np.testing.assert_array_equal(draw("Gaussian"), draw("Gaussian"))
    assert not np.array_equal(draw("Gaussian"), draw("Gaussian", name="v"))
    assert not np.array_equal(draw("Gaussian"), draw("Gaussian", seed=2))
    conf = InitConf.model_validate({"type": "Gaussian"})
    double = initial_values(conf, "w", (3, 4), 1, np.float64)
    assert double.dtype == np.float64
    np.testing.assert_array_equal(double.astype(np.float32), initial_values(conf, "w", (3, 4), 1))


def test_what_needs_a_matrix_is_found_before_the_start() -> None:
    layer = dense("fc", "data", 3)
    layer["param"] = [{"name": "w", "init": {"type": "Gausian"}}, {"name": "b", "init": {"type": "UniformSqrtFanIn"}}]
    with pytest.raises(ConfigError) as caught:
        check_initialisers(build([DATA, layer]))
    at = ("neuralnet", "layer", 1, "param")
    assert [problem.path for problem in caught.value.problems] == [(*at, 0, "init", "type"), (*at, 1, "init", "type")]
    assert "Did you mean 'Gaussian'" in caught.value.problems[0].message
    assert "'b' has shape (3,)" in caught.value.problems[1].message


def test_params_that_come_from_a_checkpoint_pass() -> None:
    layer = dense("fc", "data", 3)
    layer["param"] = [{"name": "w"}, {"name": "b"}]
    check_initialisers(build([DATA, layer]))
