"""Which kernels a test of the contract calls, and whether a backend has any of them of its own.

A backend inherits the kernels that it does not override. A test that calls only such kernels does the same on the
backend as on numpy: it runs once, under numpy's name. All of this is read from the source of tests and classes. What
cannot be read, e.g. ``ops`` in a list, counts as a call of a kernel of the backend's own, so that the test runs.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from singa_dask.ops import NumpyOps

__all__ = ["calls_own_kernel"]


@dataclass
class Uses:
    """How a function uses one of its arguments."""

    names: set[str] = field(default_factory=set)
    helpers: set[str] = field(default_factory=set)
    by_getattr: bool = False
    other: bool = False
    constants: set[str] = field(default_factory=set)


@functools.cache
def uses_of(function: Callable[..., Any], argument: str) -> Uses:
    """Read how a function uses an argument.

    Returns
    -------
    Uses
        The attributes that it asks for, the functions that it hands the argument to as their first, whether it asks
        for attributes by ``getattr``, and whether it does anything else with it.
    """
    uses, read = Uses(), set()
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    nodes = [node for statement in definition.body for node in ast.walk(statement)]
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=name) as known, attr=attribute) if name == argument:
                uses.names.add(attribute)
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id=name) as known, *_]) if name == argument:
                uses.by_getattr = True
            case ast.Call(func=ast.Name(id=helper), args=[ast.Name(id=name) as known, *_]) if name == argument:
                uses.helpers.add(helper)
            case ast.Constant(value=str(text)):
                uses.constants.add(text)
                continue
            case _:
                continue
        read.add(known)
    uses.other = any(isinstance(node, ast.Name) and node.id == argument and node not in read for node in nodes)
    return uses


def overrides(kind: type[NumpyOps], name: str) -> bool:
    """Return whether a backend has an attribute of its own, or inherits a method that uses one."""
    seen, left = set(), {name}
    while left:
        name = left.pop()
        seen.add(name)
        numpys = getattr(NumpyOps, name, None)
        # a method in a wrapper that `functools.wraps` made, e.g. for other types of values, is the same method
        if inspect.unwrap(getattr(kind, name, None)) is not inspect.unwrap(numpys):
            return True
        if inspect.isfunction(numpys):
            uses = uses_of(numpys, "self")
            if uses.other or uses.helpers or uses.by_getattr:
                return True
            left |= uses.names - seen
    return False


def named(uses: Uses, params: Mapping[str, Any]) -> set[str]:
    """Return the kernels that a test may ask for by `getattr`: those that its constants and parameters begin."""
    words = uses.constants | {getattr(value, "__name__", value) for value in params.values() if is_name(value)}
    return {name for name in dir(NumpyOps) for word in words if name == word or name.startswith(f"{word}_")}


def is_name(value: Any) -> bool:
    """Return whether a parameter is a name or has one."""
    return isinstance(value, str) or inspect.isfunction(value)


def calls_own_kernel(test: Callable[..., Any], params: Mapping[str, Any], kind: type[NumpyOps]) -> bool:
    """Return whether a test calls a kernel that a backend does not inherit from numpy.

    Parameters
    ----------
    test : function
        With an argument ``ops``.
    params : mapping
        The values of its parameters.
    kind : type of NumpyOps
        The backend.
    """
    functions, seen = [test], {test}
    while functions:
        function = functions.pop()
        argument = "ops" if function is test else next(iter(inspect.signature(function).parameters))
        uses = uses_of(function, argument)
        names = uses.names | (named(uses, params) if uses.by_getattr else set())
        if uses.other or (uses.by_getattr and not names) or any(overrides(kind, name) for name in names):
            return True
        for name in uses.helpers:
            helper = function.__globals__.get(name)
            if not inspect.isfunction(helper):
                return True
            if helper not in seen:
                seen.add(helper)
                functions.append(helper)
    return False
