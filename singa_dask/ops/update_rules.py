"""UpdateRule: the formula of an update rule, compiled to kernels for the CPU and for GPUs.

A formula is a list of assignments in Python. Expressions consist of ``+ - * /``, ``sqrt``, ``abs`` and ``max``. Their
values are assigned to the values ``w``, to arrays of the state, or to local names. ``g`` is the prepared gradient.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

from singa_dask.ops.formulas import COMPUTE, Compiler

# Names of scratch arrays of a formula on the CPU.
SCRATCH = ("tmp", "tmp2")
# Name of a function in a formula -> its name in the preamble of a kernel for GPUs.
IN_CPP = {"abs": "fabs", "max": "larger"}


class UpdateRule:
    """An update rule.

    Parameters
    ----------
    name : str
    numbers : str
        Names of the rule's numbers, in the order of a kernel's arguments.
    state : str
        Names of the arrays that the rule changes, besides ``w``.
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
        return re.sub(r"\b(abs|max)\(", lambda match: f"{IN_CPP[match[1]]}(", " ".join(steps))

    @cached_property
    def for_cpu(self) -> Callable[..., None]:
        """A function of numbers, gradient, two scratch arrays, ``w`` and the state. It allocates no memory."""
        # in the text of assignments, w -= x becomes w = w - (x), and v = g becomes a copy, since g may change later
        text = [re.sub(r"(\w+) ([-+*/])= (.+)", r"\1 = \1 \2 (\3)", step) for step in self.steps]
        names = [*self.numbers, "g", *SCRATCH, *self.arrays]
        compiler = Compiler("\n".join(re.sub(r"^(\w+ = \w+)$", r"\1 * 1.0", line) for line in text), *names)
        for line in compiler.lines:
            compiler.assign(line)
        last_read = {each: i for i, (_, args) in enumerate(compiler.steps) for each in args}
        # array -> the step that computes its new values; until this step, the array may hold values of other steps
        changed = {name: int(str(value)[1:]) for name in self.arrays if (value := compiler.known[name]) != name}
        places: dict[str | float, str] = {name: name for name in names}
        lines = [f"def {self.name}({', '.join(names)}):"]
        for i, (function, args) in enumerate(compiler.steps):
            used = {place for value, place in places.items() if last_read.get(value, -1) > i}
            own = [name for name, step in changed.items() if step == i]
            operands = [str(places.get(each, each)) for each in args]
            free = [name for name, step in changed.items() if last_read.get(f"v{i}", i) <= step and name in operands]
            places[f"v{i}"] = next(name for name in (*own, *free, *SCRATCH) if name not in used)
            lines.append(f"    {function}({', '.join(operands)}, out={places[f'v{i}']})")
        namespace = dict(COMPUTE)
        exec("\n".join(lines), namespace)
        compiled: Callable[..., None] = namespace[self.name]
        return compiled


SHIFT = UpdateRule("shift", "divisor", "", "w -= g / divisor")
