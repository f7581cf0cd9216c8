"""What the workers of a group send each other is the least that any way of doing the same would send.

The least is worked out from shapes alone: each value that a worker needs and has not comes to it once, and from each
worker that has worked with a value of another one's a gradient goes back once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.net.group import Group
from tests.net.jobs import DATA, dense, job, layer
from tests.net.test_partition import placed
from tests.selection import few_examples, mostly_long

N, D = 12, 7


def stretch(size: int, part: int, n_parts: int) -> slice:
    """Return one of so many parts that are as equal as can be."""
    return slice(part * size // n_parts, (part + 1) * size // n_parts)


def held(where: dict[str, Any], width: int, worker: int, n_workers: int) -> Any:
    """Return which values of a layer's output a worker computes, (N, width) of bool."""
    mask = np.zeros((N, width), bool)
    dim = where.get("partition_dim", 0)
    if "location" in where or dim == -1:
        mask[...] = worker == where.get("location", 0)
    elif dim == 0:
        mask[stretch(N, worker, n_workers)] = True
    else:
        mask[:, stretch(width, worker, n_workers)] = True
    return mask


def needed(where: dict[str, Any], to_all: bool, width: int, worker: int, n_workers: int) -> Any:
    """Return which values of its source a layer needs on a worker."""
    mask = held(where, width, worker, n_workers)
    return np.broadcast_to(mask.any(axis=1, keepdims=True), mask.shape) if to_all else mask


def least(layers: list[dict[str, Any]], widths: dict[str, int], n_workers: int) -> dict[str, int]:
    """Return how many values, gradients and labels of each layer have to be sent in one step."""
    totals = {"data": 0, "grad": 0, "labels": 0}
    for source in layers:
        name = source["name"]
        readers = [each for each in layers if name in each.get("srclayers", ()) and reads_data(each, name)]
        where = {key: source[key] for key in ("partition_dim", "location") if key in source}
        losses = [each for each in layers if each["type"] == "SoftmaxLoss" and each["srclayers"][1] == name]
        for worker in range(n_workers):
            regions = []
            for reader in readers:
                place = by_records(reader) if reader["type"].endswith("Loss") else reader
                to_all = reader["type"] == "InnerProduct"
                regions.append(needed(place, to_all, widths[name], worker, n_workers))
            if source["type"] == "Feed" and where.get("partition_dim") == 1 and "location" not in where:
                continue  # whole on each worker
            mine = held(where, widths.get(name, 1), worker, n_workers)
            rows = [held(by_records(loss), 1, worker, n_workers) & ~mine[:, :1] for loss in losses]
            totals["labels"] += int(np.any(rows, axis=0).sum())
            count = sum(int((region & ~mine).sum()) for region in largest(regions))
            totals["data"] += count
            totals["grad"] += count if source["type"] != "Feed" else 0
    return totals


def by_records(loss: dict[str, Any]) -> dict[str, Any]:
    """Return where a loss is, which is cut by records where the job says by features."""
    return {**loss, "partition_dim": 0} if loss.get("partition_dim") == 1 else loss


def largest(regions: list[Any]) -> list[Any]:
    """Leave out what is part of another one; some rows and some columns, which cross, both count."""
    kept: list[Any] = []
    for region in sorted(regions, key=np.sum, reverse=True):
        if not any((region <= other).all() for other in kept):
            kept.append(region)
    return kept


def reads_data(reader: dict[str, Any], source: str) -> bool:
    return not (reader["type"] == "SoftmaxLoss" and reader["srclayers"][1] == source)


def sent(layers: list[dict[str, Any]], n_workers: int, of: str = "", n_steps: int = 2) -> dict[str, int]:
    """Return how many values and gradients, of one layer or all, and labels and the like are sent in one step."""
    group = Group(job(layers), n_workers)
    group.train(n_steps)
    totals = {"data": 0, "grad": 0, "labels": 0}
    for (key, name), n in group.post.sent.items():
        if of in re.split("[^a-z0-9]", key.split(" ", 2)[2]) or not of:
            totals[name] += n
    assert not any(n % n_steps for n in totals.values())
    return {name: n // n_steps for name, n in totals.items()}


def edge(source: int, reader: int, to_all: bool) -> list[dict[str, Any]]:
    b = dense("b", "a", 8) if to_all else layer("b", "Tanh", "a")
    return [
        {**DATA, "user_conf": {"shape": [N, 6], "classes": 3}, "partition_dim": 0},
        {**dense("a", "data", D), "partition_dim": source},
        {**b, "partition_dim": reader},
        layer("loss", "SoftmaxLoss", "b", "data", partition_dim=0),
    ]


def width(part: int, n_workers: int) -> int:
    """Return how many of the D features a part has."""
    return (part + 1) * D // n_workers - part * D // n_workers


# what one of SINGA's patterns needs at least; forward and back are alike: an all-gather and a reduce-scatter
PATTERNS: dict[tuple[int, int, bool], Callable[[int], int]] = {
    (0, 0, False): lambda n: 0,
    (1, 1, False): lambda n: 0,
    (0, 0, True): lambda n: 0,
    (1, 0, False): lambda n: N * D * (n - 1) // n,
    (0, 1, False): lambda n: N * D * (n - 1) // n,
    (1, 0, True): lambda n: N * D * (n - 1) // n,
    (0, 1, True): lambda n: N * D * (n - 1),
    (1, 1, True): lambda n: N * D * (n - 1),
    (-1, -1, False): lambda n: 0,
    (-1, -1, True): lambda n: 0,
    (-1, 0, False): lambda n: N * D * (n - 1) // n,
    (-1, 0, True): lambda n: N * D * (n - 1) // n,
    (-1, 1, False): lambda n: N * (D - width(0, n)),
    (-1, 1, True): lambda n: N * D * (n - 1),
    (0, -1, False): lambda n: N * D * (n - 1) // n,
    (0, -1, True): lambda n: N * D * (n - 1) // n,
    (1, -1, False): lambda n: N * (D - width(0, n)),
    (1, -1, True): lambda n: N * (D - width(0, n)),
}


@pytest.mark.parametrize("n_workers", mostly_long([3, 2, 4], 3))
@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_a_pattern_sends_the_least(pattern: tuple[int, int, bool], n_workers: int) -> None:
    count = PATTERNS[pattern](n_workers)
    assert sent(edge(*pattern), n_workers, "a") == {"data": count, "grad": count, "labels": 0}


def test_between_two_locations_all_is_sent_once() -> None:
    layers = [{**each, "location": k % 2} for k, each in enumerate(edge(0, 0, False))]
    assert sent(layers, 3, "a") == {"data": N * D, "grad": N * D, "labels": 0}


def test_labels_do_not_drag_the_records_along() -> None:
    layers = [{**each, "location": 0} for each in edge(0, 0, True)]
    layers[-1]["location"] = 1
    assert sent(layers, 2, "data") == {"data": 0, "grad": 0, "labels": N}
    assert sent(layers, 2, "b") == {"data": N * 8, "grad": N * 8, "labels": 0}


def test_records_have_no_gradients_and_are_whole_where_they_are_cut_by_features() -> None:
    layers = [{**each, "partition_dim": 1} for each in edge(0, 0, True)]
    assert sent(layers, 3, "data") == {"data": 0, "grad": 0, "labels": 0}
    layers[0]["partition_dim"] = 0
    assert sent(layers, 3, "data") == {"data": N * 6 * 2, "grad": 0, "labels": 0}


def test_what_no_loss_reads_has_no_gradient() -> None:
    layers = [*edge(0, 0, True), layer("aside", "Tanh", "a", location=1)]
    assert sent(layers, 3, "a") == {"data": N * D * 2 // 3, "grad": 0, "labels": 0}


def test_a_worker_that_has_the_whole_cuts_pieces_of_it_itself() -> None:
    layers = [*edge(1, 0, True), layer("c", "Tanh", "a", location=1), layer("far", "EuclideanLoss", "c", "a")]
    assert sent(layers, 2, "a") == {"data": N * 3 + N // 2 * 4, "grad": N * 3 + N // 2 * 4, "labels": 0}


def test_what_nobody_reads_is_computed_and_drags_no_pieces_along() -> None:
    layers = [*edge(-1, 0, True), layer("far", "Concate", "data", "a", concate_conf={"concate_dim": 1}, location=1)]
    layers[0]["partition_dim"] = -1
    assert sent(layers, 3, "data") == {"data": N * 6, "grad": 0, "labels": 2 * (N // 3)}
    assert sent(layers, 3, "a") == {"data": N * D + 2 * (N // 3 * D), "grad": 2 * (N // 3 * D), "labels": 0}


def chain() -> list[dict[str, Any]]:
    return [
        {**DATA, "user_conf": {"shape": [N, 6], "classes": 3}},
        dense("fc1", "data", 5),
        layer("act1", "STanh", "fc1"),
        dense("fc2", "act1", 7),
        layer("act2", "Tanh", "fc2"),
        layer("drop", "Dropout", "act2"),
        dense("fc3", "drop", 4),
        layer("loss", "SoftmaxLoss", "fc3", "data"),
    ]


def forked() -> list[dict[str, Any]]:
    return [
        *chain()[:4],
        dense("fc3", "act1", 4),
        layer("act3", "Tanh", "act1"),
        layer("act4", "Tanh", "act3"),
        layer("far", "EuclideanLoss", "act4", "act3"),
        layer("loss", "SoftmaxLoss", "fc3", "data"),
        layer("loss2", "SoftmaxLoss", "fc2", "data"),
    ]


WIDTHS = {"data": 6, "fc1": 5, "act1": 5, "fc2": 7, "act2": 7, "drop": 7, "fc3": 4, "act3": 5, "act4": 5}


@pytest.mark.parametrize("make", [chain, forked])
@few_examples(4)
@given(data=st.data(), n_workers=st.integers(2, 4))
def test_any_mixture_sends_the_least(make: Any, data: st.DataObject, n_workers: int) -> None:
    layers = placed(make(), data, n_workers)
    count, wanted = sent(layers, n_workers), least(layers, WIDTHS, n_workers)
    labels = count.pop("labels")
    # with records that a worker needs as a whole all labels go, which saves a message
    assert wanted.pop("labels") <= labels <= N * (n_workers - 1)
    assert count == wanted
