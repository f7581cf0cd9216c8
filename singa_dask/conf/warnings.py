"""Warnings about a valid job: unused keys and likely mistakes, as `Problem`s with advice.

`runtime.job.checks.job` has the warnings that need nets.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from singa_dask.conf.job import JobConf
from singa_dask.conf.layer import LayerConf
from singa_dask.conf.parts import PartConf, block_value, required_keys
from singa_dask.conf.updater import UpdaterConf
from singa_dask.errors import Problem
from singa_dask.registry import Registry

SOFTMAX = ("Softmax", "CudnnSoftmax")
# type of a loss -> (activation that the loss includes, types of layers that compute this activation)
ACTIVATIONS = {
    "SoftmaxLoss": ("softmax", SOFTMAX),
    "CudnnSoftmaxLoss": ("softmax", SOFTMAX),
    "SigmoidCrossEntropyLoss": ("sigmoid", ("Sigmoid",)),
}
# parts of the type names of layers that read images
IMAGE_LAYERS = ("Conv", "Pool", "LRN", "ImagePreprocess")
UPDATER_KEYS = ("momentum", "delta")


def find_warnings(job: JobConf, registries: Mapping[str, Registry[Any]], training: bool = True) -> list[Problem]:
    """Return the warnings that need no nets; ``registries`` as in `load`.

    User-defined parts are not checked. Updater and algorithm are checked if the job is for ``training``.
    """
    problems = [*_unread_blocks(job, registries["layer"]), *_activation_twice(job), *_channels_last(job)]
    if training and job.trains:
        problems += [*_unread_updater_keys(job.updater, registries), *_unread_algorithm_block(job, registries)]
        problems += _rate_that_ends(job, registries["schedule"])
        if not job.train_steps and job.epochs is None:
            problems.append(Problem(("train_steps",), "0 steps: the net is not trained. Set train_steps or epochs."))
        if job.debug and not job.disp_freq:
            problems.append(
                Problem(("debug",), "no debug lines are written. Set disp_freq, the number of steps between two lines.")
            )
    return problems


def _is_own(registry: Registry[Any], name: str) -> bool:
    """Return whether a part is user-defined."""
    return not registry.find(name).__module__.startswith("singa_dask.")


def _unread_blocks(job: JobConf, layers: Registry[Any]) -> Iterator[Problem]:
    """Yield the blocks of layers that their types do not read."""
    for index, layer in enumerate(job.neuralnet.layer):
        if _is_own(layers, layer.type):
            continue
        # a layer type also reads the blocks of its base classes
        bases = [cls for cls in layers.find(layer.type).__mro__ if hasattr(cls, "options_class")]
        reads = list(dict.fromkeys(key for cls in bases for key in _block_key(cls)))
        hint = f"It reads {' and '.join(reads)}." if reads else "It reads no block."
        blocks = [*layer.blocks, *(["user_conf"] if layer.user_conf else [])]
        for name in [name for name in blocks if name not in reads]:
            yield Problem(("neuralnet", "layer", index, name), f"{layer.type} does not read this block. {hint}")


def _activation_twice(job: JobConf) -> Iterator[Problem]:
    """Yield a problem for each loss that includes an activation and reads a layer with the same activation."""
    for index, layer in enumerate(job.neuralnet.layer):
        activation, kinds = ACTIVATIONS.get(layer.type, ("", ()))
        source = _below(layer, job.neuralnet.layer, kinds)
        if source:
            instead = f"Read {source.srclayers[0]!r} instead." if source.srclayers else "Read what that layer reads."
            message = (
                f"{layer.type} includes the {activation}, and {source.name!r} is a {source.type} already, so the "
                f"{activation} would be applied twice. {instead}"
            )
            yield Problem(("neuralnet", "layer", index, "srclayers", 0), message)


def _below(loss: LayerConf, layers: Sequence[LayerConf], kinds: Sequence[str]) -> LayerConf | None:
    """Return the first source of a loss, if it has one of some types."""
    below = [layer for layer in layers if loss.srclayers[:1] == [layer.name] and layer.type in kinds]
    return next((layer for layer in below if layer.phases & loss.phases), None)


def _channels_last(job: JobConf) -> Iterator[Problem]:
    """Yield the shapes that layers for images read and that look like (height, width, channels)."""
    of_images = [layer for layer in job.neuralnet.layer if any(part in layer.type for part in IMAGE_LAYERS)]
    readers = {source for layer in of_images for source in layer.srclayers}
    for index, layer in enumerate(job.neuralnet.layer):
        shape = block_value(layer.blocks.get("store_conf"), "shape", [])
        if layer.name in readers and len(shape) == 3 and shape[2] in (1, 3, 4) and min(shape[:2]) > 4:
            first = [shape[2], *shape[:2]]
            message = (
                f"{shape} looks like height, width, channels, but is taken as channels, height, width. "
                f"Set shape: {first}, and layout: NHWC if the records are stored in that order."
            )
            yield Problem(("neuralnet", "layer", index, "store_conf", "shape"), message)


def _rate_that_ends(job: JobConf, schedules: Registry[Any]) -> Iterator[Problem]:
    """Warn if the learning rate is 0 in at least the last tenth of the steps."""
    conf, n = job.updater.learning_rate, job.train_steps
    if not n or _is_own(schedules, conf.type):
        return
    kind = schedules.find(conf.type)
    rate = kind(kind.lasting(conf, n))
    if rate(0) and rate(n * 9 // 10) == rate(n - 1) == 0:
        first = bisect.bisect_left(range(n), True, key=lambda step: rate(step) == 0)
        message = (
            f"the learning rate is 0 from step {first} of {n} on. To train longer, raise change_freq in its block."
        )
        yield Problem(("updater", "learning_rate"), message)


def _unread_updater_keys(updater: UpdaterConf, registries: Mapping[str, Registry[Any]]) -> Iterator[Problem]:
    """Yield the keys that the update rule, and the schedule of its learning rate, do not read."""
    kind, registry = updater.type, registries["updater"]
    if not _is_own(registry, kind):
        reads = _reads(registry, kind)
        known = f"In addition to the keys of all updaters, it reads {', '.join(reads)}." if reads else ""
        for key in (*UPDATER_KEYS, *updater.blocks):
            if key not in reads and _is_given(updater, key):
                yield Problem(("updater", key), f"{kind} does not read this key. {known}".rstrip())
    rate, registry = updater.learning_rate, registries["schedule"]
    if _is_own(registry, rate.type):
        return
    reads = _reads(registry, rate.type)
    hint = f"It reads {reads[0]}." if reads != ["base_lr"] else "It reads only base_lr."
    for key in ("base_lr", *rate.blocks):
        if key not in reads and _is_given(rate, key):
            what = "key" if key == "base_lr" else "block"
            yield Problem(("updater", "learning_rate", key), f"{rate.type} does not read this {what}. {hint}")


def _reads(registry: Registry[Any], name: str) -> list[str]:
    """Return the key of a class's block, and the keys in its ``reads``."""
    cls = registry.find(name)
    return [*_block_key(cls), *cls.reads]


def _block_key(cls: Any) -> list[str]:
    return [cls.options_class.block_key] if cls.options_class else []


def _unread_algorithm_block(job: JobConf, registries: Mapping[str, Registry[Any]]) -> Iterator[Problem]:
    """Yield the blocks that the algorithm does not read."""
    conf, registry = job.train_one_batch, registries["algorithm"]
    reads = _block_key(registry.find(conf.alg))
    for key in conf.blocks if not _is_own(registry, conf.alg) else ():
        if key not in reads and _is_given(conf, key):
            readers = [name for name in registry.names() if key in _block_key(registry.find(name))]
            message = f"{conf.alg} does not read this block. Only {', '.join(readers)} does."
            yield Problem(("train_one_batch", key), message)


def _is_given(conf: PartConf, key: str) -> bool:
    """Return whether the value of a key differs from its default."""
    if key in conf.blocks:
        block = conf.blocks[key]
        return bool(required_keys(type(block))) or block != type(block)()
    return bool(getattr(conf, key) != type(conf).model_fields[key].get_default(call_default_factory=True))
