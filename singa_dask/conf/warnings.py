"""Warnings about a valid job: keys that nothing reads, and likely mistakes.

Each is a `Problem` whose message states the fact first and then what to do. `runtime.job.client.checks` has those that
need nets.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from typing import Any

from singa_dask.conf.job import JobConf
from singa_dask.conf.layer import PHASES
from singa_dask.conf.parts import PartConf, block_value, required_keys
from singa_dask.conf.updater import UpdaterConf
from singa_dask.conf.wiring_rules import LayerWiring, read_wiring
from singa_dask.errors import Problem
from singa_dask.registry import Registry

SOFTMAX = ("Softmax", "CudnnSoftmax")
# by loss: the activation that it computes itself, and the layers that compute it
ACTIVATIONS = {
    "SoftmaxLoss": ("softmax", SOFTMAX),
    "CudnnSoftmaxLoss": ("softmax", SOFTMAX),
    "SigmoidCrossEntropyLoss": ("sigmoid", ("Sigmoid",)),
}
# a part of the names of layers that read images
IMAGE_LAYERS = ("Conv", "Pool", "LRN", "ImagePreprocess")
UPDATER_KEYS = ("momentum", "delta")


def find_warnings(job: JobConf, registries: Mapping[str, Registry[Any]], training: bool = True) -> list[Problem]:
    """Return the warnings that need no nets.

    Parameters
    ----------
    job : JobConf
    registries : mapping of str to Registry
        As for `load`. User-defined parts are not checked.
    training : bool
        Whether the job is to be trained: else nothing is said of its updater and algorithm.
    """
    problems = [*_unread_blocks(job, registries["layer"]), *_activation_twice(job), *_channels_last(job)]
    if training and job.trains:
        problems += [*_unread_updater_keys(job.updater, registries), *_unread_algorithm_block(job, registries)]
        problems += _rate_that_ends(job, registries["schedule"])
        if job.debug and not job.disp_freq:
            problems.append(
                Problem(("debug",), "nothing is written: set disp_freq, the steps from one time to the next.")
            )
    return problems


def _is_own(registry: Registry[Any], name: str) -> bool:
    """Tell whether a part is user-defined."""
    return not registry.find(name).__module__.startswith("singa_dask.")


def _unread_blocks(job: JobConf, layers: Registry[Any]) -> Iterator[Problem]:
    """Yield the blocks of layers that their types do not read."""
    for index, layer in enumerate(job.neuralnet.layer):
        if _is_own(layers, layer.type):
            continue
        # a type may read the block of a class that it extends, too
        reads = list(dict.fromkeys(key for cls in layers.find(layer.type).__mro__ for key in _own_block_key(cls)))
        hint = f"It reads {' and '.join(reads)}." if reads else "It reads no block."
        blocks = [*layer.blocks, *(["user_conf"] if layer.user_conf else [])]
        for name in [name for name in blocks if name not in reads]:
            yield Problem(("neuralnet", "layer", index, name), f"{layer.type} does not read this block. {hint}")


def _activation_twice(job: JobConf) -> Iterator[Problem]:
    """Yield the losses that read the activation that they compute themselves."""
    nodes = read_wiring(job.neuralnet.layer)
    for node in nodes:
        activation, kinds = ACTIVATIONS.get(node.type, ("", ()))
        source = _below(node, nodes, kinds)
        if source:
            instead = f"Read {source.sources[0]!r} instead." if source.sources else "Read what that layer reads."
            message = (
                f"{node.type} computes the {activation} itself, and {source.name!r} is a {source.type} already: "
                f"it would be taken twice. {instead}"
            )
            yield Problem(("neuralnet", "layer", node.index, "srclayers", 0), message)


def _below(loss: LayerWiring, nodes: list[LayerWiring], kinds: tuple[str, ...]) -> LayerWiring | None:
    """Return the layer of one of some types that a loss reads first in some phase."""
    below = [node for node in nodes if loss.sources[:1] == (node.name,) and node.type in kinds]
    return next((node for node in below if any(p in node.phases and p in loss.phases for p in PHASES)), None)


def _channels_last(job: JobConf) -> Iterator[Problem]:
    """Yield the shapes of records that look like (height, width, channels) and are read by layers for images."""
    nodes = read_wiring(job.neuralnet.layer)
    readers = {source for node in nodes if any(part in node.type for part in IMAGE_LAYERS) for source in node.sources}
    for index, layer in enumerate(job.neuralnet.layer):
        shape = block_value(layer.blocks.get("store_conf"), "shape", [])
        if layer.name in readers and len(shape) == 3 and shape[2] in (1, 3, 4) and min(shape[:2]) > 4:
            first = [shape[2], *shape[:2]]
            message = (
                f"{shape} looks like height, width, channels, but is taken as channels, height, width. "
                f"Set shape: {first}, and layout: NHWC if the records are stored so."
            )
            yield Problem(("neuralnet", "layer", index, "store_conf", "shape"), message)


def _rate_that_ends(job: JobConf, schedules: Registry[Any]) -> Iterator[Problem]:
    """Yield that the learning rate is 0 in the last tenth of the steps, or longer."""
    conf, n = job.updater.learning_rate, job.train_steps
    if not n or _is_own(schedules, conf.type):
        return
    kind = schedules.find(conf.type)
    rate = kind(kind.lasting(conf, n))
    if rate(0) and rate(n * 9 // 10) == rate(n - 1) == 0:
        first = bisect.bisect_left(range(n), True, key=lambda step: rate(step) == 0)
        message = f"the learning rate is 0 from step {first} of {n} on. Raise change_freq in its block to train longer."
        yield Problem(("updater", "learning_rate"), message)


def _unread_updater_keys(updater: UpdaterConf, registries: Mapping[str, Registry[Any]]) -> Iterator[Problem]:
    """Yield the keys that the update rule, and the schedule of its learning rate, do not read."""
    kind, registry = updater.type, registries["updater"]
    if not _is_own(registry, kind):
        reads = _reads(registry, kind)
        known = f"Beside what all updaters read, it reads {', '.join(reads)}." if reads else ""
        for key in (*UPDATER_KEYS, *updater.blocks):
            if key not in reads and _is_given(updater, key):
                yield Problem(("updater", key), f"{kind} does not read this key. {known}".rstrip())
    rate, registry = updater.learning_rate, registries["schedule"]
    if _is_own(registry, rate.type):
        return
    reads = _reads(registry, rate.type)
    hint = f"It reads {reads[0]}." if reads != ["base_lr"] else "It reads base_lr alone."
    for key in ("base_lr", *rate.blocks):
        if key not in reads and _is_given(rate, key):
            what = "key" if key == "base_lr" else "block"
            yield Problem(("updater", "learning_rate", key), f"{rate.type} does not read this {what}. {hint}")


def _reads(registry: Registry[Any], name: str) -> list[str]:
    """Return the keys that a registered class reads, beside those that all of its kind read: its block first."""
    cls = registry.find(name)
    return [*_block_key(cls), *cls.reads]


def _own_block_key(cls: Any) -> list[str]:
    """Return the key of the block that a class itself declares."""
    block = vars(cls).get("block")
    return [block.block_key] if block else []


def _block_key(cls: Any) -> list[str]:
    return [cls.block.block_key] if cls.block else []


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
    """Tell whether a key has another value than its default, which a resolved job says of every key."""
    if key in conf.blocks:
        block = conf.blocks[key]
        return bool(required_keys(type(block))) or block != type(block)()
    return bool(getattr(conf, key) != type(conf).model_fields[key].get_default(call_default_factory=True))
