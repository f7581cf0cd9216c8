"""Formula: an elementwise function and its derivative, compiled to fused kernels by each backend.

A formula is a Python expression of ``x``, numbers, ``+ - * /``, ``** 2`` and `FUNCTIONS`, after assignments to local
names: ``"w = exp(x); w / (1 + w)"``. `Compiler` compiles it to a list of `Step`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from singa_dask.arrays import Array
from singa_dask.errors import ConfigError

OPERATORS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.USub: "negative"}
COMPUTE: dict[str, Any] = {
    **{name: getattr(np, name) for name in (*OPERATORS.values(), "square", "exp", "log", "sqrt", "tanh", "abs")},
    "max": np.maximum,
    "min": np.minimum,
    "sigmoid": lambda v: 0.5 * np.tanh(0.5 * v) + 0.5,
}
FUNCTIONS = {
    **dict.fromkeys(("exp", "log", "sqrt", "tanh", "abs", "sigmoid"), 1),
    **dict.fromkeys(("max", "min"), 2),
}
"""Number of arguments of each function."""


# Largest number in a formula; float32 can represent it.
LARGEST = 3e38


class Step(NamedTuple):
    """A call of a function. Arguments are numbers, ``x``, or results of steps: ``v0`` is from step 0."""

    function: str
    args: tuple[str | float, ...]


@dataclass(frozen=True)
class Formula:
    """An elementwise function.

    Parameters
    ----------
    value, derivative : str
        Formulas of f(x) and f'(x). Numbers have the dtype of x.

    Raises
    ------
    ConfigError
        ``value`` or ``derivative`` is not a valid formula.
    """

    value: str
    derivative: str

    def __post_init__(self) -> None:
        _ = self.forward, self.backward

    @property
    def forward(self) -> tuple[Step, ...]:
        """Steps that compute f(x) from ``x``. The last step computes the result."""
        return _steps_of(self.value)

    @property
    def backward(self) -> tuple[Step, ...]:
        """Steps that compute f'(x) times ``gy`` from ``x`` and ``gy``."""
        return _steps_of(self.derivative, ("gy",))


def evaluate(steps: tuple[Step, ...], values: Mapping[str, Any]) -> Array:
    """Compute steps with NumPy from arrays by name, and return the result."""
    known = dict(values)
    with np.errstate(all="ignore"):
        for i, (function, args) in enumerate(steps):
            known[f"v{i}"] = COMPUTE[function](*(known[each] if isinstance(each, str) else each for each in args))
    result: Array = known[f"v{len(steps) - 1}"]
    return result


class Compiler:
    """Compiles Python expressions to steps. Equal steps are computed once.

    Parameters
    ----------
    text : str
        Expressions and assignments, separated by semicolons or line ends.
    *names : str
        Arguments of the formula.

    Attributes
    ----------
    lines : list of ast.stmt
        The expressions and assignments.
    steps : list of Step
    known : dict of str to str or float
        Name -> its value: an argument of the formula, a number, or the name of a step's result.
    """

    def __init__(self, text: str, *names: str) -> None:
        self.text = text
        self.lines: list[ast.stmt] = []
        self.steps: list[Step] = []
        self.known: dict[str, str | float] = {name: name for name in names}
        with suppress(SyntaxError, ValueError):
            self.lines = ast.parse(text).body
        if not self.lines:
            raise self.refuse("it is not an expression")

    def refuse(self, why: str) -> ConfigError:
        """Return the error for a formula that is not valid."""
        functions = ", ".join(FUNCTIONS)
        return ConfigError(f"formula {self.text!r}: {why}. Expected x, numbers, + - * /, ** 2, {functions}.")

    def step(self, function: str, *args: str | float) -> str | float:
        """Add a step; return the name of its result, or the number that it computes."""
        if function == "divide" and args[1] == 0:
            raise self.refuse("it divides by 0")
        if all(isinstance(each, float) for each in args):
            return float(COMPUTE[function](*args))
        if function == "multiply" and args[0] == args[1]:
            function, args = "square", args[:1]
        # computing an operation with a number again takes less time than storing its result for another use
        is_cheap = any(isinstance(each, float) for each in args) and function in OPERATORS.values()
        wanted = Step(function, args)
        if is_cheap or wanted not in self.steps:
            self.steps.append(wanted)
            return self.last
        return f"v{self.steps.index(wanted)}"

    @property
    def last(self) -> str:
        """Name of the result of the last step, e.g. ``v3``."""
        return f"v{len(self.steps) - 1}"

    def assign(self, line: ast.stmt) -> None:
        """Add the steps of an assignment."""
        if not (isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)):
            raise self.refuse("expected assignments before its last part")
        self.known[line.targets[0].id] = self.compute(line.value)

    def compute(self, node: ast.expr) -> str | float:
        """Add the steps of an expression; return the name of its value, or a number."""
        match node:
            case ast.Constant(value=int() | float() as number) if type(number) is not bool and number < LARGEST:
                return float(number)
            case ast.Name(id=name) if name in self.known:
                return self.known[name]
            case ast.Name(id=name):
                raise self.refuse(f"unknown name {name!r}")
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=2)):
                return self.step("square", self.compute(base))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
                return self.step(OPERATORS[type(operator)], self.compute(left), self.compute(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.step("negative", self.compute(operand))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if FUNCTIONS.get(name) == len(args):
                return self.step(name, *map(self.compute, args))
        raise self.refuse(f"{ast.unparse(node)!r} is not supported")


@functools.cache
def _steps_of(text: str, factors: tuple[str, ...] = ()) -> tuple[Step, ...]:
    """Return the steps of a formula multiplied by ``factors``."""
    compiler = Compiler(text, "x")
    *lines, last = compiler.lines
    for line in lines:
        compiler.assign(line)
    if not isinstance(last, ast.Expr):
        raise compiler.refuse("its last part is not an expression")
    result, step = compiler.compute(last.value), compiler.step
    for factor in factors:
        result = step("multiply", factor, result)
    if compiler.last != result:
        # if the result is an earlier step, x itself, or a number, add a step that returns it
        step("add", result, 0.0) if isinstance(result, str) else step("min", step("max", "x", result), result)
    return tuple(compiler.steps)
