"""Formula: an elementwise function and its derivative, compiled to fused kernels by each backend.

A formula is a Python expression of ``x``, numbers, ``+ - * /``, ``** 2`` and `FUNCTIONS`, after assignments to local
names: ``"w = exp(x); w / (1 + w)"``.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
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
    """A call of a function with numbers and names: arguments of the formula, or ``v0``, the result of step 0."""

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
        One of them is not a formula.
    """

    value: str
    derivative: str

    def __post_init__(self) -> None:
        _ = self.forward, self.backward

    @property
    def forward(self) -> tuple[Step, ...]:
        """Steps that compute f(x) from ``x``; the result is the last one's."""
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


@functools.cache
def _steps_of(text: str, factors: tuple[str, ...] = ()) -> tuple[Step, ...]:
    """Return the steps of a formula multiplied by ``factors``."""
    steps: list[Step] = []
    known: dict[str, str | float] = {"x": "x"}

    def refuse(why: str) -> ConfigError:
        functions = ", ".join(FUNCTIONS)
        return ConfigError(f"formula {text!r}: {why}. Expected x, numbers, + - * /, ** 2, {functions}.")

    def step(function: str, *args: str | float) -> str | float:
        if function == "divide" and args[1] == 0:
            raise refuse("it divides by 0")
        if all(isinstance(each, float) for each in args):
            return float(COMPUTE[function](*args))
        if function == "multiply" and args[0] == args[1]:
            function, args = "square", args[:1]
        # computing an operation with a number again takes less time than storing its result for another use
        is_cheap = any(isinstance(each, float) for each in args) and function in OPERATORS.values()
        wanted = Step(function, args)
        if is_cheap or wanted not in steps:
            steps.append(wanted)
            return f"v{len(steps) - 1}"
        return f"v{steps.index(wanted)}"

    def compute(node: ast.expr) -> str | float:
        match node:
            case ast.Constant(value=int() | float() as number) if type(number) is not bool and number < LARGEST:
                return float(number)
            case ast.Name(id=name) if name in known:
                return known[name]
            case ast.Name(id=name):
                raise refuse(f"unknown name {name!r}")
            case ast.BinOp(left=base, op=ast.Pow(), right=ast.Constant(value=2)):
                return step("square", compute(base))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
                return step(OPERATORS[type(operator)], compute(left), compute(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return step("negative", compute(operand))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if FUNCTIONS.get(name) == len(args):
                return step(name, *map(compute, args))
        raise refuse(f"{ast.unparse(node)!r} is not supported")

    try:
        *lines, last = ast.parse(text).body
    except (SyntaxError, ValueError):
        raise refuse("it is not an expression") from None
    for line in lines:
        if not (isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)):
            raise refuse("expected assignments before its last part")
        known[line.targets[0].id] = compute(line.value)
    if not isinstance(last, ast.Expr):
        raise refuse("its last part is not an expression")
    result = compute(last.value)
    for factor in factors:
        result = step("multiply", factor, result)
    if f"v{len(steps) - 1}" != result:
        # if the result is an earlier step, x itself, or a number, add a step that returns it
        step("add", result, 0.0) if isinstance(result, str) else step("min", step("max", "x", result), result)
    return tuple(steps)
