"""Server: hold slices of the params, and update them with gradients; after SINGA's src/server.cc.

A server is a state machine without I/O. `Server.handle` takes a message and returns the messages to send. Two errors of
SINGA are fixed: requests of different worker groups never mix in one update, and no change is lost while server groups
synchronise.

For each slice, a server stores the newest step of each worker group whose gradient it has applied. If a restarted group
sends an update again, the server applies the update once and answers twice. A lost server is never replaced alone: the
whole job restarts from a consistent checkpoint.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from singa_dask.comm.message import Address, Message, pack
from singa_dask.comm.slices import ParamSlice
from singa_dask.comm.sum_tree import tree_sum
from singa_dask.conf import ClusterConf, UpdaterConf
from singa_dask.ops.contract import ArrayList, Ops, Preparation
from singa_dask.ops.update_rules import UpdateRule
from singa_dask.runtime.checkpoints.checkpoint import AVERAGE, SavedTensor
from singa_dask.training import UPDATERS, Updater

MAX_KEPT_LISTS = 256
"""Maximum number of cached lists of slices that are updated together. Further lists are built again in each step."""
MAX_STALENESS = 64
"""Gradients with a larger staleness are counted together."""
MORE = "more"


class UpdateCounts:
    """Counts the updates of one server since its start.

    In each step of each worker group, each slice is updated once. The staleness of a gradient is the number of updates
    of its slice between two events: the server sent the values from which the gradient was computed, and the server
    received the gradient.
    """

    def __init__(self) -> None:
        self.applied = 0
        self._n_gradients: Counter[int] = Counter()
        self._sum = 0

    def add_gradient(self, staleness: int) -> None:
        """Count a gradient."""
        self._n_gradients[min(staleness, MAX_STALENESS + 1)] += 1
        self._sum += staleness

    def report(self) -> dict[str, Any]:
        """Return the counts for the report of the server.

        Returns
        -------
        dict
            ``applied``: number of updates. ``staleness``: number of gradients by staleness, ``"0"``, ``"1"``, ... or
            ``"more"``. ``staleness_sum``: sum of the staleness of all gradients.
        """
        staleness = {str(i) if i <= MAX_STALENESS else MORE: n for i, n in sorted(self._n_gradients.items())}
        return {"applied": self.applied, "staleness": staleness, "staleness_sum": self._sum}


@dataclass
class _Held:
    """A slice that this server holds.

    Attributes
    ----------
    applied : list of int
        For each worker group, the newest step whose gradient was applied to the values; -1 at first.
    given : list of int
        For each worker group, the version of the values that were last sent to the group; -1 at first.
    sent : dict
        Gradients received so far for the next update, by worker group.
    waiting : list of Message
        Requests for values that wait for a later version.
    last : ndarray or None
        Values at the last sync with the master group of the slice; None if this group is the master.
    """

    slice: ParamSlice
    value: Any
    state: dict[str, Any]
    applied: list[int]
    given: list[int]
    version: int = -1
    sent: dict[int, dict[tuple[Address, int], Message]] = field(default_factory=dict)
    waiting: list[Message] = field(default_factory=list)
    last: np.ndarray | None = None
    n_since_sync: int = 0
    syncing: bool = False
    has_average: bool = False

    def merge(self, applied: Sequence[int]) -> None:
        """Merge the applied steps of another server group, after its changes were added to the values."""
        self.applied = [max(pair) for pair in zip(self.applied, applied, strict=True)]


class _Gradient(NamedTuple):
    """The gradient of a slice, summed over a worker group, and the messages that contained it."""

    held: _Held
    total: Any
    group: int
    step: int
    requests: Sequence[Message] = ()


@dataclass
class _Norm:
    """Gradients of one step that wait for their common norm, and sums of squares by server."""

    gradients: list[_Gradient] = field(default_factory=list)
    squares: dict[int, float] = field(default_factory=dict)


ACCUMULATED = "accumulated"
"""Name of the updater state that holds the sum of the gradients since the last update of a slice."""
MOVING_AVERAGE = UpdateRule("moving_average", "beta rest", "a", "a = beta * a + rest * w")


def state_names(updater: Updater) -> tuple[str, ...]:
    """Return the names of the arrays that a server stores for a trained slice, besides its values."""
    wanted = {ACCUMULATED: updater.conf.accumulate > 1, AVERAGE: updater.conf.ema_decay > 0}
    return (*updater.state_names, *(name for name, is_wanted in wanted.items() if is_wanted))


class Server:
    """One server of a server group.

    The thread of the server or the thread of a worker calls its methods. A caller must hold the `lock`.

    Parameters
    ----------
    slices : sequence of ParamSlice
        The slices that this server holds.
    values : callable
        Takes the index of a param; returns the 1-D array of its values in this process.
    scales : sequence of (float, float) or None
        For each param, ``lr_scale`` and ``wd_scale``; None for a running statistic, which is not trained.
    gradient_divisors : sequence of int
        For each param, the divisor that turns its summed gradient into the mean.
    ops : Ops
        Kernels for the device of the values. On a GPU, an update counts as done once it is enqueued: all kernels that
        read the new values or overwrite the gradient are enqueued after it.
    n_trained : mapping of int to int
        Number of trained slices of each server of the group, to clip the norm of all gradients together.

    Attributes
    ----------
    lock : Lock
        Held while a thread calls the server.
    duplicates : int
        Number of updates that arrived again and were not applied again.
    counts : UpdateCounts
        Counts of the applied updates.
    """

    def __init__(
        self,
        address: Address,
        slices: Sequence[ParamSlice],
        values: Callable[[int], Any],
        scales: Sequence[tuple[float, float] | None],
        gradient_divisors: Sequence[int],
        updater: UpdaterConf,
        cluster: ClusterConf,
        ops: Ops,
        n_trained: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.address = address
        self.lock = threading.Lock()
        self.ops = ops
        self.updater: Updater = UPDATERS.find(updater.type)(updater)
        self.updater.ops = ops
        self._n_batches = updater.accumulate
        self.sync_freq = cluster.sync_freq
        self.scales = scales
        self.gradient_divisors = gradient_divisors
        # with several worker groups, values may change before an answer is sent, so answers contain copies
        self.is_only_group = cluster.nworker_groups == 1
        self.duplicates = 0
        self.counts = UpdateCounts()
        self._held: dict[int, _Held] = {}
        for piece in slices:
            view = values(piece.param)[piece.start : piece.stop]
            names = state_names(self.updater) if scales[piece.param] else ()
            state = {name: ops.zeros(view.shape, view.dtype) for name in names}
            applied, given = ([-1] * cluster.nworker_groups for _ in range(2))
            self._held[piece.id] = _Held(piece, view, state, applied, given)
        self._kept_lists: dict[tuple[int, ...], tuple[ArrayList, ArrayList, dict[str, ArrayList]]] = {}
        self._settling: Message | None = None
        self._unsettled: set[int] = set()
        self._n_trained = n_trained
        self._norms: dict[tuple[int, int], _Norm] = defaultdict(_Norm)

    def restore(
        self, state: Callable[[str, ParamSlice], np.ndarray | None], applied: Callable[[ParamSlice], Mapping[int, int]]
    ) -> None:
        """Load updater state and applied steps from a checkpoint. Workers send the values.

        Parameters
        ----------
        state : callable
            Takes the name of an updater state and a slice; returns the stored array, or None.
        applied : callable
            Takes a slice; returns the newest applied step of each worker group.
        """
        for held in self._held.values():
            for group, step in applied(held.slice).items():
                held.applied[group] = step
            for name, values in held.state.items():
                if (stored := state(name, held.slice)) is not None:
                    self.ops.copy(stored, out=values)
                    held.has_average |= name == AVERAGE

    def applied(self, group: int) -> int | None:
        """Return the newest step of a worker group that is applied to all slices of this server.

        The result is -1 before the first step, and None if the server holds no slices. Thread-safe.
        """
        return min((held.applied[group] for held in self._held.values()), default=None)

    def handle(self, message: Message) -> list[Message]:
        """Handle a message; return the messages to send, which may include answers to earlier messages."""
        handler: Callable[[Message], list[Message]] = getattr(self, "_on_" + message.kind.replace("-", "_"))
        return handler(message)

    def _on_pack(self, message: Message) -> list[Message]:
        if all(part.kind == "update" for part in message.parts):
            return pack(self._update(message.parts))
        return pack(answer for part in message.parts for answer in self.handle(part))

    def _on_put(self, message: Message) -> list[Message]:
        held = self._held[message.slice]
        if not message.info["in_place"]:  # in-place means that the worker wrote the values into the server's memory
            self.ops.copy(message.arrays[0], out=held.value)
        if AVERAGE in held.state and not held.has_average:
            self.ops.copy(held.value, out=held.state[AVERAGE])
            held.has_average = True
        held.version = held.given[message.info["group"]] = message.version
        if held.slice.master != self.address.group:
            held.last = held.value.copy()
        return self._serve_waiting(held)

    def _on_get(self, message: Message) -> list[Message]:
        held = self._held[message.slice]
        held.waiting.append(message)
        return self._serve_waiting(held)

    def _serve_waiting(self, held: _Held) -> list[Message]:
        ready = [message for message in held.waiting if held.version >= max(message.version, 0)]
        held.waiting = [message for message in held.waiting if held.version < max(message.version, 0)]
        return [self._answer(message, held, "r-get") for message in ready]

    def _on_update(self, message: Message) -> list[Message]:
        return self._update([message])

    def _update(self, messages: Sequence[Message]) -> list[Message]:
        """Collect gradients, update the slices whose gradients are complete, and return the answers.

        All updates are done together, before the first answer, so that few kernels are needed.
        """
        duplicates: list[Message] = []
        complete: list[_Gradient] = []
        for message in messages:
            held, group = self._held[message.slice], message.info["group"]
            if message.step <= held.applied[group]:
                self.duplicates += 1
                duplicates.append(message)
                continue
            sent = held.sent.setdefault(group, {})
            sent[message.src, message.info["node"]] = message
            if sum(part.info["n"] for part in sent.values()) < message.info["total"]:
                continue
            del held.sent[group]
            received = [sent[key] for key in sorted(sent)]
            total = tree_sum({part.info["node"]: part.arrays[0] for part in received})
            complete.append(_Gradient(held, total, group, message.step, received))
        due, following = self._clip(complete)
        self._apply(due)
        answers = [self._answer(request, self._held[request.slice], "r-update") for request in duplicates]
        return answers + self._answer_all(due) + following

    def _answer_all(self, gradients: Sequence[_Gradient]) -> list[Message]:
        """Return the answers about updated slices, one for each slice and process."""
        answers = []
        for gradient in gradients:
            by_process = {request.src: request for request in gradient.requests}
            answers += [self._answer(request, gradient.held, "r-update") for request in by_process.values()]
            answers += self._serve_waiting(gradient.held) + self._sync(gradient.held)
        return answers

    def _clip(self, gradients: Sequence[_Gradient]) -> tuple[list[_Gradient], list[Message]]:
        """Return the gradients that can be applied now, and the messages to send.

        With ``clip_norm``, all other gradients wait until their common norm is known. The norm is known once all
        gradients of the step have arrived here, and all other servers of the group have sent their sums of squares.
        """
        due, following = [], list[Message]()
        for gradient in gradients:
            key = gradient.group, gradient.step
            if not self.updater.conf.clip_norm or not self._is_last(gradient):
                due.append(gradient)
                continue
            norm = self._norms[key]
            if self.address.id in norm.squares:  # a restarted group repeats this gradient: answer its new request
                norm.gradients = [
                    each._replace(requests=gradient.requests) if each.held is gradient.held else each
                    for each in norm.gradients
                ]
                continue
            norm.gradients.append(gradient)
            if len(norm.gradients) == self._n_trained[self.address.id]:
                norm.squares[self.address.id] = squares = self._squares(norm.gradients)
                info = {"group": gradient.group, "squares": squares}
                for other in self._n_trained.keys() - {self.address.id}:
                    to = Address.server(self.address.group, other)
                    following.append(Message("norm", self.address, to, step=gradient.step, info=info))
                following += self._apply_clipped(*key)
        return due, following

    def _is_last(self, gradient: _Gradient) -> bool:
        """Return whether a gradient of a trained param is the last one before an update of its values."""
        return self.scales[gradient.held.slice.param] is not None and not (gradient.step + 1) % self._n_batches

    def _on_norm(self, message: Message) -> list[Message]:
        """Add the sum of squares of another server of the group."""
        key = message.info["group"], message.step
        self._norms[key].squares[message.src.id] = message.info["squares"]
        return self._apply_clipped(*key)

    def _squares(self, gradients: Sequence[_Gradient]) -> float:
        """Return the sum of squares of gradients, after averaging each gradient over the batch."""
        squares = []
        for held, total, *_ in sorted(gradients, key=lambda gradient: gradient.held.slice.id):
            if self._n_batches > 1:
                total = total + held.state[ACCUMULATED]
            n = self.gradient_divisors[held.slice.param] * self._n_batches
            squares.append(float(self.ops.to_host(self.ops.sum_squares(total)).item()) / n**2)
        return math.fsum(squares)

    def _scale(self, squares: Mapping[int, float]) -> float:
        """Return the factor that limits the norm of the gradients to ``clip_norm``, with PyTorch's formula."""
        norm = math.sqrt(math.fsum(squares.values()))
        return min(1.0, self.updater.conf.clip_norm / (norm + 1e-6))

    def _apply_clipped(self, group: int, step: int) -> list[Message]:
        """Apply the gradients of a step once their norm is known; return the answers."""
        if len(self._norms[group, step].squares) < len(self._n_trained):
            return []
        norm = self._norms.pop((group, step))
        self._apply(norm.gradients, self._scale(norm.squares))
        return self._answer_all(norm.gradients)

    @property
    def has_values(self) -> bool:
        """Whether all slices have their initial values."""
        return all(held.version >= 0 for held in self._held.values())

    def update(self, step: int, gradients: Sequence[tuple[int, Any]]) -> None:
        """Update slices in the thread of the only worker.

        ``gradients`` has pairs of the number of a slice and its gradient.
        """
        new = []
        for number, total in gradients:
            held = self._held[number]
            if step <= held.applied[0]:
                self.duplicates += 1
                continue
            new.append(_Gradient(held, total, 0, step))
        due, _ = self._clip(new)
        self._apply(due)
        for gradient in new:
            gradient.held.given[0] = gradient.held.version

    def _begin_update(self, held: _Held, group: int, step: int) -> None:
        """Count an update before it is applied.

        If another server sent the values, the staleness is not counted.
        """
        held.applied[group] = step
        self.counts.applied += 1
        if self.scales[held.slice.param] is not None and held.given[group] >= 0:
            self.counts.add_gradient(held.version - held.given[group])

    def _apply(self, due: Sequence[_Gradient], scale: float = 1.0) -> None:
        """Update slices with their gradients times ``scale``.

        Slices with equal step and version share kernels.
        """
        alike: dict[Any, list[tuple[_Held, Any]]] = defaultdict(list)
        for gradient in due:
            held, total, group, step, _ = gradient
            index = held.slice.param
            self._begin_update(held, group, step)
            sums = held.state.get(ACCUMULATED)
            if sums is not None:
                np.add(sums, total, out=sums)
                total = sums
            if sums is None or self._is_last(gradient):
                learns = self.scales[index] is not None
                alike[step, held.version, learns, self.gradient_divisors[index]].append((held, total))
            held.version += 1
        for (step, version, learns, divisor), pairs in alike.items():
            values, grads, state = self._lists(pairs)
            if not learns:
                self.ops.shift(values, grads, divisor)
                continue
            lr_scale, wd_scale = zip(*(self.scales[held.slice.param] or () for held, _ in pairs), strict=True)
            more = {"n_sharers": divisor * self._n_batches, "lr_scale": lr_scale, "wd_scale": wd_scale, "scale": scale}
            self.updater.update(step, version // self._n_batches, values, grads, state, **more)
            if AVERAGE in state:
                decay = self.updater.conf.ema_decay
                self.ops.update(MOVING_AVERAGE, Preparation(), (decay, 1 - decay), grads, values, state[AVERAGE])
            for _, total in pairs if self._n_batches > 1 else ():
                total[...] = 0

    def _lists(self, pairs: Sequence[tuple[_Held, Any]]) -> tuple[ArrayList, ArrayList, dict[str, ArrayList]]:
        """Return values, gradients and updater state of slices as lists.

        On a GPU the same slices get the same list objects in each step.
        """
        # a kept list keeps its arrays alive, so no other array can get the same id
        key = tuple(id(total) for _, total in pairs)
        if key in self._kept_lists:
            return self._kept_lists[key]
        slices = [held for held, _ in pairs]
        state = {name: ArrayList(held.state[name] for held in slices) for name in slices[0].state}
        lists = ArrayList(held.value for held in slices), ArrayList(total for _, total in pairs), state
        if self.ops.prefers_large_kernels:
            if len(self._kept_lists) >= MAX_KEPT_LISTS:
                self._kept_lists.clear()
            self._kept_lists[key] = lists
        return lists

    def _answer(self, message: Message, held: _Held, kind: str) -> Message:
        arrays: tuple[Any, ...] = ()
        group = message.info["group"]
        held.given[group] = held.version
        if not message.info["in_place"]:
            arrays = (held.value if self.is_only_group else self._copy(held.value),)
        about: dict[str, Any] = {"param": held.slice.param, "slice": held.slice.id, "version": held.version}
        info = {"group": group}
        return Message(kind, self.address, message.src, **about, step=message.step, info=info, arrays=arrays)

    def _copy(self, values: Any) -> Any:
        """Return a copy of values, to be sent."""
        copied = self.ops.recycled(values.size, values.dtype)
        self.ops.copy(values, out=copied)
        return copied

    def _sync(self, held: _Held) -> list[Message]:
        """Every ``sync_freq`` updates, return the message that sends a slice's changes to its master group."""
        if held.last is None:
            return []
        held.n_since_sync += 1
        if held.n_since_sync < self.sync_freq or held.syncing:
            return []
        return [self._push(held)]

    def _difference(self, values: Any, before: Any) -> Any:
        out = self.ops.recycled(values.size, values.dtype)
        np.subtract(values, before, out=out)
        return out

    def _push(self, held: _Held) -> Message:
        """Return the message that sends the changes of a slice since the last sync to its master group."""
        assert held.last is not None
        change = self._difference(held.value, held.last)
        np.copyto(held.last, held.value)
        held.n_since_sync = 0
        held.syncing = True
        to, info = Address.server(held.slice.master, self.address.id), {"applied": list(held.applied)}
        return Message("sync", self.address, to, slice=held.slice.id, info=info, arrays=(change,))

    def _on_sync(self, message: Message) -> list[Message]:
        held = self._held[message.slice]
        held.value += message.arrays[0]
        held.merge(message.info["applied"])
        info, values = {"applied": list(held.applied)}, (self._copy(held.value),)
        return [Message("r-sync", self.address, message.src, slice=message.slice, info=info, arrays=values)]

    def _on_r_sync(self, message: Message) -> list[Message]:
        """Take the values of the master group, plus the changes that this server has made meanwhile."""
        held = self._held[message.slice]
        assert held.last is not None
        meanwhile = self._difference(held.value, held.last)
        np.copyto(held.last, message.arrays[0])
        np.add(message.arrays[0], meanwhile, out=held.value)
        held.merge(message.info["applied"])
        held.syncing = False
        return self._settle()

    def _on_settle(self, message: Message) -> list[Message]:
        """Exchange all changes with the master groups, then answer. No worker may send gradients meanwhile."""
        self._settling = message
        self._unsettled = {number for number, held in self._held.items() if held.last is not None}
        return self._settle()

    def _settle(self) -> list[Message]:
        if self._settling is None:
            return []
        pushes = [self._push(self._held[each]) for each in sorted(self._unsettled) if not self._held[each].syncing]
        self._unsettled -= {push.slice for push in pushes}
        if self._unsettled or any(held.syncing for held in self._held.values()):
            return pushes
        asked, self._settling = self._settling, None
        return [
            Message("r-settle", self.address, asked.src, step=asked.step, info={"requester": asked.info["requester"]})
        ]

    def _on_replaced(self, message: Message) -> list[Message]:
        """Drop the messages of workers that restart."""
        groups = {unit.group for unit in (Address(*each) for each in message.info["units"])}
        for norm in (norm for (group, _), norm in self._norms.items() if group in groups):
            # once the sum of squares is sent, other servers scale with it, so these gradients must be applied
            is_sent = self.address.id in norm.squares
            norm.gradients = [each._replace(requests=()) for each in norm.gradients] if is_sent else []
        for held in self._held.values():
            for group in groups:
                held.sent.pop(group, None)
            held.waiting = [each for each in held.waiting if each.info["group"] not in groups]
        return []

    def copy_slices(self) -> list[SavedTensor]:
        """Return copies of the values and updater state of every slice, for a checkpoint."""
        pieces = []
        for held in self._held.values():
            arrays = {"value": held.value, **held.state}
            applied = {group: step for group, step in enumerate(held.applied) if step >= 0}
            for name, array in arrays.items():
                copied = self.ops.to_host(array)
                copied = copied.copy() if copied is array else copied
                of_value = applied if name == "value" and not self.is_only_group else {}
                pieces.append(SavedTensor(held.slice.param, held.slice.start, name, held.version, copied, of_value))
        return pieces
