"""Node: one layer to be built, as the steps of a plan hand it on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from singa_dask.conf import LayerConf
from singa_dask.errors import Problem

__all__ = ["Node"]

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True)
class Node:
    """One layer to be built.

    Attributes
    ----------
    conf : LayerConf
    index : int
        Place in the job's list of the layer that this one comes from: where an error points.
    sources : tuple of str
        Names of the layers it reads, in order.
    layer : str
        Name in the job of the layer that this one comes from.
    first_step, n_steps : int
        Time steps that it computes.
    gives : tuple of str
        Names of its outputs, one each, where they have names of their own.
    loops : tuple of str
        Names of layers whose outputs it takes from an earlier pass.
    worker : int or None
        Who computes it; None is each worker of the group, by records.
    dim, part, n_parts : int
        The axis along which the layer is cut, -1 for none; and which part of how many it is.
    peer : int
        Of a bridge: the worker of the other end.
    follows : bool
        It is partitioned as what it reads is, whatever the job says.
    put_in : bool
        Partitioning has put it in, for the layer at ``index``: what is wrong with it is how that one is partitioned.
    """

    conf: LayerConf
    index: int
    sources: tuple[str, ...]
    layer: str = ""
    first_step: int = 0
    n_steps: int = 1
    gives: tuple[str, ...] = ()
    loops: tuple[str, ...] = ()
    worker: int | None = None
    dim: int = 0
    part: int = 0
    n_parts: int = 1
    peer: int = 0
    follows: bool = False
    put_in: bool = False

    @property
    def name(self) -> str:
        """Name of the layer, unique in the plan."""
        return self.conf.name

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names under which others read it."""
        return self.gives or (self.name,)

    def problem(self, message: str, keys: Path = ()) -> Problem:
        """Say what is wrong at a key of this layer."""
        return Problem(("neuralnet", "layer", self.index, *keys), message)
