"""Params: the params of a net by name, and how layers and nets share them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from singa_dask.errors import Problem
from singa_dask.layers import Param
from singa_dask.net.nodes import Node
from singa_dask.net.wiring import Wiring
from singa_dask.wording import suggest


@dataclass
class LogicalParam:
    """A whole param, or one shard of it, that the servers store for a worker group.

    Attributes
    ----------
    owner : Param
        The param whose name and settings apply. The other params share the values of this param.
    param : Param
        One of the params that use the stored values. It has the same shape and shard as these values.
    n_gradients : int
        Number of gradients that one worker computes in a step. In a partitioned net, the number for the whole group.
    users : set of str
        Names of the layers that compute these gradients.
    summed : bool
        Whether the gradients of layers that share the param are summed. By default they are averaged.
    holder : int
        The first worker of the group that has the param. This worker sends the initial values.
    workers : set of int
        In a partitioned net, all workers that have the param; otherwise empty.
    """

    owner: Param
    param: Param
    n_gradients: int = 0
    users: set[str] = field(default_factory=set)
    summed: bool = False
    holder: int = 0
    workers: set[int] = field(default_factory=set)


def whole_params(logical: Mapping[str, LogicalParam]) -> list[Param]:
    """Return the owners of logical params, each once, even if parts of an owner are stored separately."""
    return list({kept.owner.name: kept.owner for kept in logical.values()}.values())


class Params:
    """The params of one net. For a partitioned net, the params of all workers of the group.

    Attributes
    ----------
    by_name : dict of str to Param
        The first param of each name.
    owners : list of Param
        See `NeuralNet`.
    logical : dict of str to LogicalParam
        See `NeuralNet`.
    shared : dict of str to LogicalParam
        Logical params of another net, whose values this net uses.
    """

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.by_name: dict[str, Param] = {}
        self.owners: list[Param] = []
        self.logical: dict[str, LogicalParam] = {}
        self.shared: dict[str, LogicalParam] = {}
        self._families: dict[str, list[tuple[Param, Node]]] = {}

    def located(self) -> list[tuple[Param, Node, int]]:
        """Return each param with its node and its index among the node's params, for errors."""
        layers = [layer for layer in self.wiring.all_layers if layer.site.prototype is None]
        nodes = self.wiring.node_of
        return [(param, nodes[layer.name], k) for layer in layers for k, param in enumerate(layer.params)]

    def index_names(self) -> list[Problem]:
        """Index the params by name; return a problem for each name that two layers use."""
        problems = []
        layers: dict[str, str] = {}
        for param, node, k in self.located():
            if layers.setdefault(param.name, node.layer) != node.layer:
                message = f"another layer has a param {param.name!r}. Rename one, or share it by share_from."
                problems.append(node.problem(message, ("param", k, "name")))
            self.by_name.setdefault(param.name, param)
        return problems

    def resolve_sharing(self) -> list[Problem]:
        """Find the owner of each param by following ``share_from``; return the problems.

        Call this method for a net with values of its own. For a net that uses the values of another net, call
        `share_with`.
        """
        problems = []
        for param, node, k in self.located():
            owner = self.owner_of(param)
            if isinstance(owner, str):
                problems.append(node.problem(owner, ("param", k, "share_from")))
            elif math.prod(owner.whole_shape) != math.prod(param.whole_shape):
                message = (
                    f"{param.name!r} of shape {param.whole_shape} cannot share the values of {owner.name!r}, "
                    f"of shape {owner.whole_shape}. Expected equal sizes."
                )
                problems.append(node.problem(message, ("param", k, "share_from")))
            else:
                self._families.setdefault(owner.name, []).append((param, node))
        return problems

    def owner_of(self, param: Param) -> Param | str:
        """Return the param that has the values of ``param``, found by following ``share_from``.

        If there is no such param, return an error message.
        """
        passed = [param]
        while name := passed[-1].conf.share_from:
            # SINGA 0.3 writes 0#w1 for a param that job files call w1
            owner = self.by_name.get(name) or self.by_name.get(name.removeprefix("0#"))
            if owner is None:
                return f"there is no param {name!r}. {suggest(name, self.by_name)}"
            if owner in passed:
                return f"param {param.name!r} is shared from itself."
            passed.append(owner)
        return passed[-1]

    def share_with(self, other: Params) -> list[Problem]:
        """Make the params use the values of another net's params with the same names; return the problems."""
        problems = []
        theirs: dict[tuple[str, int, int | None], Param] = {}
        for param, node, _ in other.located():
            column_part = node.part if node.partition_dim == 1 else 0
            places = (node.worker, None) if other.wiring.is_here(node) else (node.worker,)
            theirs |= {(param.name, column_part, place): param for place in places}
        for param, node, k in self.located():
            column_part = node.part if node.partition_dim == 1 else 0
            places = (node.worker, None) if self.wiring.is_here(node) else (node.worker,)
            found = next((found for place in places if (found := theirs.get((param.name, column_part, place)))), None)
            if found is None:
                message = f"the training net has no param {param.name!r}. {suggest(param.name, other.by_name)}"
                if param.name in other.by_name:
                    message = f"the training net has {param.name!r} on another worker. Set one location in both."
                problems.append(node.problem(message, ("param", k, "name")))
                continue
            if found.view is not None:
                param.keep_whole()
            if found.size != param.size:
                message = f"{param.name!r} has shape {found.whole_shape} in the training net, {param.whole_shape} here."
                problems.append(node.problem(message, ("param", k)))
            param.share(found)
            owner = other.owner_of(found)
            self.shared |= {key: kept for key, kept in other.logical.items() if kept.owner is owner}
        return problems

    def assign_owners(self) -> None:
        """Decide for each param whether workers store and send its parts separately, or the whole param.

        The whole param is stored if different layers use different parts of it.
        """
        learning = {param for layer in self.wiring.all_layers if layer.learns for param in layer.params if param.trains}
        for name in [param.name for param, _, _ in self.located() if not param.conf.share_from]:
            family, owner = self._families.pop(name, []), self.by_name[name]
            parts = {(param.whole_shape, param.shard and param.shard[1:]) for param, node in family if not node.part}
            if len(parts) > 1:
                for param, _ in family:
                    param.keep_whole()
            for param, node in family:
                new = LogicalParam(owner, param, holder=node.worker or 0)
                kept = self.logical.setdefault(param.key_of(name), new)
                if node.worker is not None:
                    kept.workers.add(node.worker)
                kept.summed |= param.conf.share_gradient == "sum"
                if param in learning:
                    kept.n_gradients += 1
                    kept.users.add(node.layer)
                if self.wiring.is_here(node):
                    self._assign(param, owner)

    def _assign(self, param: Param, owner: Param) -> None:
        """Make a param of this worker use the owner's values that this worker stores."""
        key = param.key_of(owner.name)
        kept = next((owned for owned in self.owners if owned.key == key), None)
        if kept is None:
            kept = param if param.key == key else Param.part_of(owner, param)
            kept.cancellation = self.wiring.context.cancellation
            self.owners.append(kept)
        param.share(kept)
