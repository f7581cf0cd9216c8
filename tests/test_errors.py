"""The error tree: exit codes, and problems that show where they are."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from singa_dask import errors
from singa_dask.errors import ConfigError, Mark, Problem


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.SingaError, 1),
        (errors.ConfigError, 2),
        (errors.ClusterError, 3),
        (errors.UnloadableError, 3),
        (errors.DataError, 1),
        (errors.MissingPackageError, 2),
        (errors.CheckpointError, 1),
        (errors.UnusableCheckpointError, 2),
        (errors.CommError, 1),
        (errors.DeviceMemoryError, 1),
        (errors.PartError, 1),
        (errors.UnitError, 1),
        (errors.NumericError, 5),
        (errors.LostUnitError, 4),
        (errors.Aborted, 1),
    ],
)
def test_exit_codes(kind: type[errors.SingaError], code: int) -> None:
    assert kind.exit_code == code
    assert issubclass(kind, errors.SingaError)


def test_builtin_kin() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.DataError, OSError)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem(("a", 2, "b"), "wrong.", Mark("f.yaml", 3, 7)), "f.yaml:3:7: a[2].b: wrong."),
        (Problem(("a", 2), "wrong.", Mark("--set a=1"), "a[fc1]"), "--set a=1: a[fc1]: wrong."),
        (Problem((), "wrong."), "wrong."),
    ],
)
def test_a_problem_shows_where_it_is(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_config_error_takes_words_one_problem_or_many() -> None:
    one = Problem(("a",), "wrong.")
    assert str(ConfigError("wrong.")) == "wrong."
    assert ConfigError(one).problems == (one,)
    assert str(ConfigError([one, one])) == "a: wrong.\na: wrong."


def test_config_error_travels() -> None:
    error = ConfigError([Problem(("a", 1), "wrong.", Mark("f", 1, 2), "a[x]")])
    assert pickle.loads(pickle.dumps(error)).problems == error.problems


@pytest.mark.parametrize("error", [ConfigError("wrong"), errors.DataError("lost"), errors.LeftQueueError("left", 130)])
def test_a_notebook_shows_the_lines_of_the_user(error: errors.SingaError, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def structured_traceback(*values: Any, tb_offset: int) -> list[str]:
        given.extend(values)
        return ["shown"]

    shell = SimpleNamespace(InteractiveTB=SimpleNamespace(structured_traceback=structured_traceback))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    caught = error
    try:
        exec(compile("fail()", "ours", "exec"), {"__name__": "singa_dask.x", "fail": lambda: _fail(error)})
    except errors.SingaError as other:
        caught = other
    assert caught._render_traceback_() == ["shown"]
    kind, shown, frames = given
    assert (kind, str(shown), shown.__context__) == (type(error), str(error), None)
    assert frames.tb_frame.f_code.co_name == "test_a_notebook_shows_the_lines_of_the_user"
    assert frames.tb_next is None


def _fail(error: Exception) -> None:
    raise error from KeyError("what was before")
