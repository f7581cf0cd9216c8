"""UpdateRule: the formula of an update rule, compiled to kernels for the CPU and for GPUs.

A formula is assignments in Python, and in C++ but for the types of local names. They assign expressions of ``+ - * /``,
``sqrt``, ``fabs`` and ``larger`` to the values ``w``, arrays of the state, and local names. ``g`` is the prepared
gradient.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

OPERATORS = {ast.Add: "np.add", ast.Sub: "np.subtract", ast.Mult: "np.multiply", ast.Div: "np.divide"}
FUNCTIONS = {"sqrt": "np.sqrt", "fabs": "np.abs", "larger": "np.maximum"}
# Names of scratch arrays of a formula on the CPU.
SCRATCH = ("tmp", "tmp2")


class UpdateRule:
    """An update rule.

    Parameters
    ----------
    name : str
    numbers : str
        Names of its numbers, in the order of a kernel's arguments.
    state : str
        Names of the other arrays that it changes, beside ``w``.
    formula : str
        Assignments, separated by semicolons.
    """

    def __init__(self, name: str, numbers: str, state: str, formula: str) -> None:
        self.name, self.numbers, self.arrays = name, numbers.split(), ["w", *state.split()]
        self.steps = [step.strip() for step in formula.split(";")]

    @property
    def for_gpu(self) -> str:
        """The formula in C++, for values of a type T."""
        names, steps = {*self.arrays}, []
        for step in self.steps:
            name = step.split()[0]
            steps.append(f"{step};" if name in names else f"T {step};")
            names.add(name)
        return " ".join(steps)

    @cached_property
    def for_cpu(self) -> Callable[..., None]:
        """A function of numbers, gradient, two scratch arrays, ``w`` and the state, which allocates nothing."""
        arguments = ", ".join([*self.numbers, "g", *SCRATCH, *self.arrays])
        calls = _Calls(ast.parse("\n".join(self.steps)), self.arrays)
        namespace: dict[str, Any] = {"np": np}
        exec("\n    ".join([f"def {self.name}({arguments}):", *calls.lines]), namespace)
        function: Callable[..., None] = namespace[self.name]
        return function


class _Calls:
    """Compiles a formula to calls of NumPy, one for each operation, in the same order."""

    def __init__(self, formula: ast.Module, arrays: list[str]) -> None:
        self.lines: list[str] = []
        self._arrays = arrays
        self._free = [*SCRATCH]
        # local name -> its scratch array, and name -> number of remaining reads
        self._locals: dict[str, str] = {}
        self._reads = Counter(node.id for node in ast.walk(formula) if isinstance(node, ast.Name))
        for step in formula.body:
            self._assign(step)

    def _assign(self, step: ast.stmt) -> None:
        if isinstance(step, ast.AugAssign):
            value: ast.expr = ast.BinOp(step.target, step.op, step.value)
            target: ast.expr = step.target
        else:
            assert isinstance(step, ast.Assign)
            value, (target,) = step.value, step.targets
        assert isinstance(target, ast.Name)
        self._reads[target.id] -= isinstance(step, ast.Assign)
        out = target.id if target.id in self._arrays else ""
        if isinstance(value, ast.Name):
            # copy the array, because the other name may be changed later
            copied, out = self._compute(value), out or self._free.pop(0)
            self.lines.append(f"np.copyto({out}, {copied})")
        else:
            out = self._compute(value, out)
        if target.id not in self._arrays:
            self._locals[target.id] = out

    def _compute(self, node: ast.expr, target: str = "") -> str:
        """Add the calls for an expression; return the name of the array of its value: ``target``, if given."""
        if isinstance(node, ast.Name):
            self._reads[node.id] -= 1
            return self._locals.get(node.id, node.id)
        if isinstance(node, ast.BinOp):
            function, operands = OPERATORS[type(node.op)], [node.left, node.right]
        else:
            assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            self._reads[node.func.id] -= 1
            function, operands = FUNCTIONS[node.func.id], node.args
        values = []
        for i, operand in enumerate(operands):
            # compute the first operand in the array of the result, unless a later operand reads this array
            later = {each.id for other in operands[i + 1 :] for each in ast.walk(other) if isinstance(each, ast.Name)}
            values.append(self._compute(operand, target if i == 0 and target not in later else ""))
        kept = {memory for name, memory in self._locals.items() if self._reads[name]}
        spent = [memory for memory in SCRATCH if memory in values and memory not in kept]
        out = target or (spent.pop(0) if spent else self._free.pop(0))
        self._free = [memory for memory in SCRATCH if memory in {*self._free, *spent}]
        self.lines.append(f"{function}({', '.join(values)}, out={out})")
        return out


SHIFT = UpdateRule("shift", "divisor", "", "w -= g / divisor")
