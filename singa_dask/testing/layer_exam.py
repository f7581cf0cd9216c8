"""Checks of layers: what they write, gradients, rows, time steps, partition and devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from singa_dask.conf import Phase
from singa_dask.errors import PartError
from singa_dask.inputs import InputContext
from singa_dask.layers import Connection, Feature, Layer, ShardIndex, Span
from singa_dask.layers.base import key_at
from singa_dask.layers.forwarding import Forwarding
from singa_dask.net.debug import watch_backward, watch_forward
from singa_dask.ops import BFLOAT16, get_ops
from singa_dask.ops.contract import Array
from singa_dask.testing.case import CPU, Case, backward, forward, metric, results
from singa_dask.testing.examine import compare, examine

EPSILON = 1e-5
TOLERANCE = 1e-6
BACKWARD = Phase.TRAIN | Phase.BACKWARD
PARTS = 2
SMALL = 2.0**-200
N_MOVED = 8


def check_layer(kind: str | type[Layer], shapes: Sequence[tuple[int, ...]], **more: Any) -> list[str]:
    """Check a type of layer.

    Parameters
    ----------
    kind : str or type of Layer
        The class of the layer, or its name in a job file.
    shapes : sequence of tuple of int
        Shapes of the layer's sources, batch first. Use small shapes, because gradients are compared value by value.
    more
        ``conf``, ``n_steps``, ``labels``, ``fixed``, ``kink``, ``loss_factor``, ``integers``, ``source_steps`` or
        ``masked``; see `Case`.

    Returns
    -------
    list of str
        The checks that were not possible on this machine, with reasons.

    Raises
    ------
    PartError
        The layer has mistakes. The message lists all of them, with advice.
    """
    case = Case(kind, shapes, **more)
    return examine(case.cls.__name__, {name: partial(check, case) for name, check in LAYER_ASPECTS.items()})


# -- checks of declarations and written memory -------------------------------------------------------------


def check_contract(case: Case) -> None:
    """Check what a layer declares and writes, and that the same batch gives the same values."""
    layer = case.wired()
    _check_declared(layer)
    _check_dtypes(layer)
    values, learns = [param.data.copy() for param in layer.params], _learns(layer)
    watch_forward(layer, Phase.TRAIN | Phase.FORWARD)
    added = tuple(layer.metrics.take())
    if set(added) != set(layer.traits.metrics):
        raise PartError(
            f"forward() adds the metrics {added}, but the traits name {layer.traits.metrics}. Name the added metrics "
            f"in the traits."
        )
    forwards = isinstance(layer, Forwarding) and "labels" in layer.forwards
    has_labels = [feature.records.labels is not None for feature in (layer.sources[:1] + layer.features[:1])]
    if forwards and has_labels == [True, False]:
        raise PartError('its forwards names "labels", but output 0 has no labels. Set output.records = source.records.')
    for feature in layer.features:
        if feature.grad is not None:
            layer.ops.copy(feature.data, out=feature.grad)
    if learns:
        watch_backward(layer, BACKWARD, lambda each, phase: each.backward(phase), False)
        if layer.speed.accumulates:
            watch_backward(layer, BACKWARD, lambda each, _: backward(each, adds=True), True)
    arrays = results(layer, back=learns)
    remedy = "Draw random numbers by self.random_key; keep what lasts as self.state, or in a param."
    for when, other in (("after another one", layer), ("in another process", case.wired())):
        _negate(other)
        results(other, back=learns)
        _negate(other)
        for name, actual in results(other, back=learns).items():
            compare(f"{name} of the same batch {when}", actual, arrays[name], 0, remedy)
    remedy, other = "Keep what belongs to a layer in self, not in its class or module.", case.wired()
    _negate(other)
    for name, actual in results(layer, back=learns, between=partial(forward, other)).items():
        compare(f"{name} beside another layer of the type", actual, arrays[name], 0, remedy)
    if learns:
        learnt = [k for k, source in enumerate(layer.sources) if source.requires_grad]
        for without in [{k} for k in learnt if len(learnt) > 1] + [set(learnt)] * bool(learnt and layer.params):
            for name, actual in results(case.wired(sources=case.sources(without=without))).items():
                remedy = "Write the gradient of a source only if source.grad is not None."
                compare(f"{name}, where source {max(without)} has no gradient,", actual, arrays[name], 0, remedy)
    for param, wanted in zip(layer.params, values, strict=True):
        remedy = "Only updaters change params. Write param.grad[...], or copy the values first."
        compare(f"after a step the value of param {param.name!r}", param.data, wanted, 0, remedy)


def _negate(layer: Layer) -> None:
    for source in layer.sources:
        if source.has_data and source.requires_grad:
            source.data[...] = -source.data


def _learns(layer: Layer) -> bool:
    return type(layer).backward is not Layer.backward


def _check_declared(layer: Layer) -> None:
    if not _learns(layer) and layer.traits.role != "input" and any(feature.requires_grad for feature in layer.features):
        remedy = "Write it; or, to pass no gradient, use add_output(..., requires_grad=False)."
        raise PartError(f"there is no backward(), so layers before it would never learn. {remedy}")


def _check_dtypes(layer: Layer) -> None:
    """Check that outputs have the dtype of the net, and that no buffer has a less precise dtype."""
    wanted = layer.context.dtype
    named = [(f"output {k}", each.dtype, each.dtype != wanted) for k, each in enumerate(layer.features)]
    named += [
        (f"buffer {name!r}", each.dtype, each.dtype.itemsize < wanted.itemsize) for name, each in layer.buffers.items()
    ]
    for name, dtype, is_wrong in named:
        if dtype.kind == "f" and is_wrong:
            remedy = "Leave dtype out, or use self.context.dtype, so that it follows the job's precision."
            raise PartError(f"{name} is {dtype} in a net of {wanted}. {remedy}")


# -- checks of gradients -------------------------------------------------------------------------------------


def check_case_gradients(case: Case) -> None:
    """Compare gradients with central differences; for a loss, the gradients of its first metric."""
    layer = case.wired()
    if not _learns(layer) or not (layer.params or any(source.requires_grad for source in layer.sources)):
        return
    objective = None
    if layer.traits.role == "loss":
        if not layer.traits.metrics:
            raise PartError(
                "a loss must add the value that it differentiates, by add_metric, and name it in Traits(metrics=...)."
            )
        loss, factor = metric(layer, layer.traits.metrics[0]), case.loss_factor * case.n_steps
        objective = lambda: factor * loss()  # noqa: E731
    check_gradients(layer, objective)
    if objective is None:
        _check_linear(layer)


def _check_linear(layer: Layer) -> None:
    """Check that very small gradients, which need float64, are proportional to gradients of normal size."""
    random = np.random.default_rng(5)
    weights = [random.normal(size=feature.shape) for feature in layer.features]
    whole, small = results(layer, weights), results(layer, [each * SMALL for each in weights])
    statistics = {f"the gradient of param {param.name!r}" for param in layer.params if param.running_statistic}
    for name in [each for each in whole if "gradient" in each and each not in statistics]:
        remedy = "Compute gradients in the dtype of their memory, and clip or round nothing."
        compare(f"of small gradients {name}", small[name] / SMALL, whole[name], 1e-9, remedy)


def check_gradients(layer: Layer, objective: Callable[[], float] | None = None) -> None:
    """Compare the gradient of every source and param, except running statistics, with central differences.

    Parameters
    ----------
    layer : Layer
        A layer from `wire`, with float64 sources.
    objective : callable, optional
        Returns the value whose gradients the layer computes, after a forward pass. The default is a randomly weighted
        sum of the outputs.
    """
    random = np.random.default_rng(5)
    weights = [random.normal(size=feature.shape) for feature in layer.features]

    def weighted() -> float:
        return sum(float((w * f.data).sum()) for w, f in zip(weights, layer.features, strict=True))

    results(layer, weights)
    named = [(f"source {k}", s.data, s.grad.copy()) for k, s in enumerate(layer.sources) if s.grad is not None]
    named += [
        (f"param {param.name!r}", param.data, param.grad.copy())
        for param in layer.params
        if param.has_grad and not param.running_statistic
    ]
    if not named:
        raise PartError("nothing to differentiate: no source needs a gradient, and there are no params.")
    for name, values, analytic in named:
        remedy = "The expected value is the slope of forward(). Correct backward()."
        numeric = _differences(layer, values, objective or weighted)
        compare(f"the gradient of {name}", analytic, numeric, TOLERANCE, remedy)
    forward(layer)


def _differences(layer: Layer, values: Any, measure: Callable[[], float]) -> Any:
    numeric = np.empty_like(values)
    layer.metrics.take()
    for place in np.ndindex(values.shape):
        kept, sides = values[place], []
        for sign in (1, -1):
            values[place] = kept + sign * EPSILON
            forward(layer)
            sides.append(measure())
        values[place] = kept
        numeric[place] = (sides[0] - sides[1]) / (2 * EPSILON)
    return numeric


def check_capturable(case: Case) -> None:
    """Check that a `capturable` layer reads the step only in `prepare` and in its random keys."""
    if not case.cls.speed.capturable:
        return
    wanted, layer = _outputs(case, Phase.TRAIN, step=8), case.wired()
    layer.random_key = lambda *more: key_at(type(layer).random_key(layer, *more), 8)  # type: ignore[method-assign]
    layer.context.step = 8
    layer.prepare(Phase.TRAIN | Phase.FORWARD)
    layer.context.step = 7
    layer.forward(Phase.TRAIN | Phase.FORWARD)
    for k, values in enumerate(wanted):
        remedy = "Read self.context.step in prepare(), or take capturable out of its speed."
        compare(f"output {k} at step 8 of a captured step 7", layer.features[k].data, values, 0, remedy)


def check_fuses(case: Case) -> None:
    """Check that operations that a layer fuses give the same results as separate neighbour layers."""
    weights = [np.random.default_rng(5).normal(size=feature.shape) for feature in case.wired().features]
    for what in case.wired().speed.fuses:
        layer, other = case.wired(), case.wired()
        if what == "relu_grad":
            for x in (layer.sources[0].data, other.sources[0].data):
                np.maximum(x, 0, out=x)
        wanted = results(other, weights)
        if what == "relu":
            layer.fused.relu = layer.fused.masks_output = True
            is_on = wanted["output 0"] > 0
            wanted = results(other, [weights[0] * is_on]) | {"output 0": wanted["output 0"] * is_on}
        elif what == "relu_grad":
            layer.fused.relu_grad = True
            wanted["the gradient of source 0"] *= layer.sources[0].data > 0
        elif what == "add":
            layer.fused.add = other.features[0]
            wanted["output 0"] *= 2
        elif what == "add_grad":
            layer.fused.add_grad = other.sources[0]
            wanted["the gradient of source 0"] *= 2
        else:
            wanted |= {f"the gradient of source {k}": weights[0] for k in case.every}
        for name, actual in results(layer, weights).items():
            remedy = f"Correct it, or remove {what!r} from fuses."
            compare(f"{name}, with {what!r}", actual, wanted[name], 1e-9, remedy)


# -- checks of rows, time steps and parts ----------------------------------------------------------------------


def _part(whole: Feature, take: Callable[[Array], Array], n_steps: int, span: Span | None = None) -> Feature:
    """Return a source with some rows of ``whole``, or with a span of its features."""
    part = Feature(take(np.empty(whole.shape)).shape, whole.dtype, whole.requires_grad)
    if whole.has_data:
        part.allocate("data", CPU.features)
        part.data[...] = take(whole.data)
    if whole.grad is not None:
        part.allocate("grad", CPU.features)
    part.n_steps, part.span = n_steps, span or part.span
    part.records = whole.records if span else whole.records.slice(take)
    return part


def _outputs(case: Case, phase: Phase, sources: Sequence[Feature] | None = None, step: int = 7) -> list[Array]:
    """Return the outputs of a layer in a net of a phase, at a step of training."""
    context = InputContext(phase=phase, dtype=np.dtype(np.float64), seed=3, step=step)
    layer = case.wired(sources=sources, context=context)
    arrays = results(layer, back=False)
    return [arrays[f"output {k}"] for k in range(len(layer.features))]


def _is_random(case: Case) -> bool:
    """Return whether a layer draws random numbers that differ from step to step."""
    steps = zip(_outputs(case, Phase.TRAIN), _outputs(case, Phase.TRAIN, step=8), strict=True)
    return any(not np.array_equal(output, other) for output, other in steps)


def check_rows(case: Case) -> None:
    """Check that the output of a row in a test depends neither on its index nor on other rows."""
    traits = case.cls.traits
    if issubclass(case.cls, Forwarding) or traits.role == "output" or not case.shapes:
        return

    def taken(values: Array, rows: slice, n_steps: int = case.n_steps) -> Array:
        kept = values.reshape(n_steps, -1, *values.shape[1:])[:, rows]
        return np.ascontiguousarray(kept.reshape(-1, *values.shape[1:]))

    sources = case.sources(without=case.every)
    half = slice((case.shapes[0][0] // sources[0].n_steps + 1) // 2)
    whole = _outputs(case, Phase.TEST, sources)
    for rows, where in ((slice(None, None, -1), "in another row"), (half, "in a smaller batch")):
        parts = [_part(source, partial(taken, rows=rows, n_steps=source.n_steps), source.n_steps) for source in sources]
        for k, (values, actual) in enumerate(zip(whole, _outputs(case, Phase.TEST, parts), strict=True)):
            remedy = "In a test, compute each row only from that row."
            compare(f"output {k} of the same record {where} of a test", actual, taken(values, rows), 1e-9, remedy)


def check_time_steps(case: Case) -> None:
    """Check that a `time_foldable` layer computes the same for two time steps in one call as in two calls."""
    traits = case.cls.traits
    if not case.cls.speed.time_foldable or traits.steps in ("recurrent", "columns"):
        return
    if case.n_steps > 1 or not case.shapes:
        return
    random, phase = np.random.default_rng(5), Phase.TEST if _is_random(case) else Phase.TRAIN
    labels = case.labels and [*case.labels, *case.labels]
    both = case._replace(shapes=[(2 * n, *rest) for n, *rest in case.shapes], labels=labels, n_steps=2)
    sources = both.sources()
    context = InputContext(phase=phase, dtype=np.dtype(np.float64), seed=3, step=7)
    layer = both.wired(sources=sources, context=context)
    learns = layer.learns and _learns(layer)
    weights = [random.normal(size=feature.shape) for feature in layer.features]
    folded, alone = results(layer, weights, learns), list[dict[str, Array]]()
    for t in range(2):
        parts = [_part(each, partial(_half, t=t), 1) for each in sources]
        step = case.wired(sources=parts, context=context, first_step=t)
        alone.append(results(step, [_half(each, t) for each in weights], learns))
    for name in [each for each in folded if "metric" not in each]:
        values, steps = folded[name], [each[name] for each in alone]
        wanted = sum(steps) if values.shape == steps[0].shape else np.concatenate(steps)
        remedy = "A row depends on others, or on its place: take time_foldable out of its speed."
        if layer.traits.role == "loss":
            remedy = "Multiply the gradients of the mean over all rows by self.site.n_steps."
        compare(f"{name} of two time steps at once", values, wanted, 1e-9, remedy)


def _half(values: Array, t: int) -> Array:
    return values[t * len(values) // 2 : (t + 1) * len(values) // 2]


def check_features(case: Case) -> None:
    """Check that the parts of a `feature_parallel` layer, ``partition_dim: 1``, compute the same as the whole."""
    connection = case.cls.speed.feature_parallel
    if connection is None or case.cls.traits.steps == "recurrent" or not case.shapes or _is_random(case):
        return
    random, whole = np.random.default_rng(5), case.wired()
    weights = [random.normal(size=feature.shape) for feature in whole.features]
    wanted, sums = results(whole, weights), dict[str, Array]()
    remedy = "Correct shapes and axis of add_param, or remove feature_parallel from its speed."
    for k in range(PARTS):
        sources = case.sources()
        spans = [Span.of(each.shape[1], k, PARTS) for each in sources]
        if connection is Connection.ONE_TO_ONE:
            parts = zip(sources, spans, strict=True)
            sources = [_part(each, partial(_columns, span=span), case.n_steps, span) for each, span in parts]
        part = case.wired(sources=sources, feature_shard=ShardIndex(k, PARTS))
        own = [feature.span for feature in part.features]
        arrays = results(part, [_columns(w, span) for w, span in zip(weights, own, strict=True)])
        expected = {f"output {i}": _columns(wanted[f"output {i}"], span) for i, span in enumerate(own)}
        for param in part.params:
            name = f"the gradient of param {param.name!r}"
            expected[name] = param.shard.of(wanted[name]) if param.shard else wanted[name]
        for i, span in enumerate(spans):
            name = f"the gradient of source {i}"
            if name in wanted and connection is Connection.ONE_TO_ONE:
                expected[name] = _columns(wanted[name], span)
            elif name in wanted:
                sums[name] = sums.get(name, 0) + arrays[name]
        for name, values in expected.items():
            compare(f"{name} of part {k}", arrays[name], values, 1e-9, remedy)
    for name, total in sums.items():
        compare(f"{name}, added over the parts,", total, wanted[name], 1e-9, remedy)


def _columns(values: Array, span: Span) -> Array:
    return values[:, span.start : span.stop]


# -- checks on other devices -------------------------------------------------------------------------------------


def check_device(case: Case, name: str, precision: str, within: float) -> None:
    """Compare the results of a device with NumPy in float64.

    ``within`` is the tolerance, relative to the largest value of each array.
    """
    ops = get_ops(name, precision)
    dtype = BFLOAT16 if precision == "bf16" else np.dtype(precision)
    remedy = "Use kernels, self.ops, arithmetic and x[...] = values; leave dtypes to singa-dask."
    with ops.activate():
        layer = case.wired(ops, dtype)
        if precision == "float32":
            _check_dtypes(layer)
        arrays = results(layer, back=_learns(layer))
    wanted = [results(case.wired(), back=_learns(layer))]
    if precision == "bf16":
        # rounding can move an intermediate value across a kink, such as the 0 of a ReLU, where the gradient jumps
        wanted += [_moved(case, seed, back=_learns(layer)) for seed in range(N_MOVED)]
    for what, values in wanted[0].items():
        near = [each[what] for each in wanted]
        nearest = np.clip(arrays[what], np.min(near, 0), np.max(near, 0)) if len(near) > 1 else values
        compare(f"{what} in {precision} by {ops.name}", arrays[what], nearest, within, remedy)


def _moved(case: Case, seed: int, back: bool) -> dict[str, Array]:
    """Return the results in float64 after random changes as small as roundings to bfloat16."""
    random, layer = np.random.default_rng(seed), case.wired()
    for values in [s.data for s in layer.sources if s.grad is not None] + [param.data for param in layer.params]:
        values *= 1 + random.uniform(-1, 1, values.shape) * 2.0**-7
    return results(layer, back=back)


LAYER_ASPECTS: dict[str, Callable[[Case], None]] = {
    "contract": check_contract,
    "gradients": check_case_gradients,
    "capturable": check_capturable,
    "fusion": check_fuses,
    "rows of a test": check_rows,
    "time steps": check_time_steps,
    "partition_dim 1": check_features,
    "oneDNN": partial(check_device, name="onednn", precision="float32", within=2e-5),
    "bfloat16": partial(check_device, name="onednn", precision="bf16", within=2.0**-4),
    "GPU": partial(check_device, name="cupy", precision="float64", within=1e-6),
}
"""Checks of a layer by name, each a function of a case."""
