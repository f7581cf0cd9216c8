"""The augmentation of input layers: Pillow's colours, counts of draws, the same bits for any number of workers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.data.stores import STORES
from singa_dask.errors import ConfigError
from singa_dask.inputs import InputContext
from singa_dask.inputs.augmentation import Augmentation, AugmentConf, Mixing, symmetric_beta
from singa_dask.inputs.store_input import StoreInput
from singa_dask.layers import LAYERS, RecordIds
from singa_dask.net import NeuralNet
from singa_dask.ops import philox
from singa_dask.testing.case import wire
from tests.inputs.test_input import layer_of
from tests.net.jobs import build

Array = np.ndarray[Any, Any]
SHAPE = (3, 10, 8)
ALL = {
    "brightness": 0.4,
    "contrast": 0.4,
    "saturation": 0.4,
    "flip": True,
    "rotate": 30.0,
    "cutout": 3,
    "drop": 0.1,
    "noise": 0.2,
}


def drawn(name: str, low: Array, high: Array) -> Array:
    return philox.words((7, name), low, high)


def mixed_of(x: Array, other: Array, first: int = 0, **conf: Any) -> tuple[Array, Array]:
    """Return records that are mixed with others, and their shares."""
    ids = np.arange(first, first + len(x))
    mix = Mixing(AugmentConf(**conf), x.shape[1:], lambda *at: philox.words((7, "mixing"), *at))
    return mix(x, other, RecordIds(None, ids, np.zeros(len(x), np.int64)))


def augmented(x: Array, mean: Any = None, std: Any = None, **conf: Any) -> Array:
    """Return records after the changes of a block, as those of epoch 0."""
    change = Augmentation(AugmentConf(**conf), x.shape[1:], mean, std, drawn)
    return change(x, np.arange(len(x)), np.zeros(len(x), np.int64))


def images(n: int = 40, shape: tuple[int, ...] = SHAPE) -> Array:
    return np.random.default_rng(3).integers(0, 256, (n, *shape), np.uint8)


@pytest.mark.parametrize(
    ("key", "row", "enhancer"),
    [("brightness", 0, "Brightness"), ("contrast", 1, "Contrast"), ("saturation", 2, "Color")],
)
def test_colours_are_pillows(key: str, row: int, enhancer: str) -> None:
    image = pytest.importorskip("PIL.Image")
    enhance = pytest.importorskip("PIL.ImageEnhance")
    x = images()
    factors = 0.3 + 1.4 * drawn("colour", np.arange(40), np.zeros(40, np.int64))[row] / 2**32
    assert factors.min() < 0.6
    assert factors.max() > 1.4
    for before, after, factor in zip(x, augmented(x, **{key: 0.7}), factors, strict=True):
        picture = image.fromarray(before.transpose(1, 2, 0))
        wanted = np.asarray(getattr(enhance, enhancer)(picture).enhance(factor)).transpose(2, 0, 1)
        # Pillow rounds greys and results
        assert np.abs(after - wanted).max() < 2


def test_pixels_stay_in_their_range_and_floats_have_none() -> None:
    pixels = augmented(images(), brightness=1.0)
    assert pixels.min() == 0
    assert pixels.max() == 255
    floats = augmented(images().astype(np.float32), brightness=1.0)
    assert floats.max() > 255
    negative = augmented(images().astype(np.float32) - 128, contrast=1.0)
    assert negative.min() < -128


def test_half_of_the_images_are_upside_down() -> None:
    x = images(2000)
    y = augmented(x, flip=True)
    flipped = (y == x[:, :, ::-1]).all(axis=(1, 2, 3))
    assert ((y == x).all(axis=(1, 2, 3)) != flipped).all()
    assert abs(flipped.sum() - 1000) < 4 * np.sqrt(500)


def test_a_square_becomes_the_mean() -> None:
    mean = np.random.default_rng(1).uniform(300, 400, SHAPE).astype(np.float32)
    y = augmented(images(8000), mean, cutout=3)
    cut = (y == mean).all(axis=1)
    # each pixel is the centre as often as another one; at a border a part of the square is outside
    centres = cut.sum(axis=(1, 2))
    assert set(centres.tolist()) == {4, 6, 9}
    assert abs((centres == 4).mean() - 4 / 80) < 4 * np.sqrt(0.05 / 8000)
    wanted = np.outer([2, *[3] * 8, 2], [2, *[3] * 6, 2]) / 80
    assert np.abs(cut.mean(axis=0) - wanted).max() < 4 * np.sqrt(9 / 80 / 8000)
    rows, columns = (cut.any(axis=axis).sum(axis=1) for axis in (2, 1))
    np.testing.assert_array_equal(rows * columns, centres)


def test_rotation_by_right_angles_moves_pixels() -> None:
    x = images(2, (3, 7, 7))
    conf = AugmentConf(rotate=180)
    for word, turns in ((1 << 30, -1), (3 << 30, 1), (0, 2), (1 << 31, 0)):
        change = Augmentation(conf, x.shape[1:], None, None, lambda _, low, __, w=word: np.full((4, len(low)), w))
        y = change(x, np.arange(2), np.zeros(2, np.int64))
        np.testing.assert_allclose(y, np.rot90(x, turns, (2, 3)), atol=1e-4)


def test_rotated_corners_are_the_mean() -> None:
    x = images(200)
    mean = np.full(SHAPE, 1000.0)
    y = augmented(x, mean, rotate=180)
    corners = y[:, :, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert (corners == 1000).mean() > 0.3
    assert (y[:, :, 4:6, 3:5] < 256).all()


def test_columns_are_dropped_to_their_mean() -> None:
    x = np.random.default_rng(2).normal(size=(4000, 5)).astype(np.float32)
    mean = np.arange(10, 15.0)
    y = augmented(x, mean, drop=0.25)
    dropped = y == mean
    np.testing.assert_array_equal(y[~dropped], x[~dropped])
    assert np.abs(dropped.mean(axis=0) - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 4000)
    # columns are independent
    assert abs((dropped[:, 0] & dropped[:, 1]).mean() - 1 / 16) < 4 * np.sqrt(1 / 16 / 4000)


def test_noise_is_normal_in_units_of_normalised_values() -> None:
    std = np.array([0.5, 3.0, np.inf])
    noise = augmented(np.zeros((20_000, 3), np.float64), None, std, noise=0.1)
    assert not noise[:, 2].any()
    normal = noise[:, :2] / (0.1 * std[:2])
    assert np.abs(normal.mean(axis=0)).max() < 4 / np.sqrt(20_000)
    assert np.abs(normal.std(axis=0) - 1).max() < 4 / np.sqrt(40_000)
    # shares of N(0, 1) below -2, -1, 0, 1 and 2
    for bound, share in ((-2, 0.022750), (-1, 0.158655), (0, 0.5), (1, 0.841345), (2, 0.977250)):
        assert abs((normal < bound).mean() - share) < 4 * np.sqrt(0.25 / 40_000)
    assert abs(np.corrcoef(normal.T)[0, 1]) < 4 / np.sqrt(20_000)


def test_a_record_is_changed_by_its_number_and_epoch_alone() -> None:
    x, ids = images(60), np.arange(60)
    change = Augmentation(AugmentConf(**ALL), SHAPE, 100.0, 50.0, drawn)
    first = change(x, ids, np.zeros(60, np.int64))
    assert first.dtype == np.float32
    shuffled = np.random.default_rng(0).permutation(60)
    np.testing.assert_array_equal(change(x[shuffled], ids[shuffled], np.zeros(60, np.int64)), first[shuffled])
    for row in range(5):
        np.testing.assert_array_equal(change(x[row][None], ids[row][None], np.zeros(1, np.int64))[0], first[row])
    other = change(x, ids, np.ones(60, np.int64))
    assert (other != first).any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0, 4.0])
def test_shares_have_the_moments_of_a_beta_distribution(alpha: float) -> None:
    n = 40_000
    _, shares = mixed_of(np.zeros((n, 1)), np.zeros((n, 1)), mixup=alpha)
    assert 0 <= shares.min() < 0.5 < shares.max() <= 1
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(shares.mean() - 0.5) < 4 * np.sqrt(variance / n)
    fourth = 3 / (16 * (2 * alpha + 1) * (2 * alpha + 3))
    assert abs(((shares - 0.5) ** 2).mean() - variance) < 4 * np.sqrt((fourth - variance**2) / n)


def test_mixed_values_that_are_equal_stay_so() -> None:
    ones = np.ones((1000, 2), np.float32)
    mixed, _ = mixed_of(ones, ones, mixup=0.7)
    np.testing.assert_array_equal(mixed, ones)


def test_a_rectangle_of_the_other_image_is_pasted() -> None:
    n = 3000
    x, other = np.zeros((n, *SHAPE), np.float32), np.ones((n, *SHAPE), np.float32)
    mixed, shares = mixed_of(x, other, cutmix=1.0)
    pasted = mixed[:, 0] == 1
    np.testing.assert_array_equal(mixed, np.repeat(pasted[:, None], 3, axis=1))
    np.testing.assert_allclose(1 - shares, pasted.mean(axis=(1, 2)))
    rows, columns = (pasted.any(axis=axis).sum(axis=1) for axis in (2, 1))
    np.testing.assert_array_equal(rows * columns, pasted.sum(axis=(1, 2)))
    assert rows.max() == 8
    # the sides are even where no border cuts them, in the proportion of the image
    drawn = symmetric_beta(1.0, philox.words((7, "mixing"), np.arange(n), np.zeros(n, np.int64)))
    whole = pasted.any(axis=(1, 2)) & ~(pasted[:, [0, -1]].any(axis=(1, 2)) | pasted[:, :, [0, -1]].any(axis=(1, 2)))
    np.testing.assert_array_equal(rows[whole], 2 * np.floor(np.sqrt(1 - drawn[whole]) * 5))


def test_mixup_and_cutmix_each_take_half() -> None:
    x, other = np.zeros((4000, *SHAPE), np.float32), np.ones((4000, *SHAPE), np.float32)
    mixed, _ = mixed_of(x, other, mixup=1.0, cutmix=1.0)
    is_cut = ((mixed == 0) | (mixed == 1)).all(axis=(1, 2, 3))
    assert abs(is_cut.sum() - 2000) < 4 * np.sqrt(1000)


# -- in an input layer ---------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Any]:
    """Write 100 images; return the store_conf of a layer that reads them."""
    path = str(tmp_path / "images.arrow")
    labels = np.arange(100, dtype=np.int32)
    records = {"pixel": images(100), "label": labels, "target": labels.astype(np.float32)[:, None]}
    STORES.find("arrow").write(path, records, block_bytes=1000)
    values = {"mean_value": 120.0, "std_value": 60.0, "augment": ALL}
    return {"path": path, "shape": SHAPE, "batchsize": 12, "shuffle": "full", **values}


def nets_of(store_conf: dict[str, Any], n: int, **context: Any) -> list[NeuralNet]:
    layers = [{"name": "data", "type": "RecordInput", "store_conf": store_conf}]
    nets = [build(layers, worker=i, n_workers=n, **context) for i in range(n)]
    for net in nets:
        net.allocate()
    return nets


def step(nets: list[NeuralNet]) -> Array:
    """Return the values of a batch, and what is known of its records, as one array."""
    for net in nets:
        net.layers[0].forward(net.context.phase | Phase.FORWARD)
    features = [net.layers[0].features[0] for net in nets]
    columns = zip(*(feature.records._values() for feature in features), strict=True)
    known = [np.concatenate(each) for each in columns if each[0] is not None]
    values = np.concatenate([feature.data for feature in features])
    return np.concatenate([values.reshape(len(values), -1), np.stack(known, axis=1)], axis=1)


MIXED = {"mixup": 0.4, "cutmix": 1.0, "brightness": 0.4}


@pytest.mark.parametrize("augment", [ALL, MIXED])
def test_records_are_the_same_for_any_number_of_workers_and_after_a_resume(
    stored: dict[str, Any], augment: dict[str, Any]
) -> None:
    stored["augment"] = augment
    alone, two, four = (nets_of(stored, n) for n in (1, 2, 4))
    for _ in range(20):
        wanted = step(alone)
        np.testing.assert_array_equal(step(two), wanted)
        np.testing.assert_array_equal(step(four), wanted)
    cursors = alone[0].cursors()
    assert cursors["data"]["samples_seen"] == 240
    assert alone[0].inputs[0].epoch == 2.4
    rest = [step(alone) for _ in range(10)]
    resumed = nets_of(stored, 2)
    for net in resumed:
        net.seek(cursors)
    for wanted in rest:
        np.testing.assert_array_equal(step(resumed), wanted)
    alone[0].advance(-10)
    np.testing.assert_array_equal(step(alone), rest[0])
    for net in (*alone, *two, *four, *resumed):
        net.close()


def test_a_record_is_mixed_with_the_one_in_its_row_of_the_next_batch(stored: dict[str, Any]) -> None:
    layer, plain = (layer_of("RecordInput", **{**stored, "augment": augment}) for augment in ({"mixup": 0.4}, None))
    target = wire("TargetInput", [], store_conf={**stored, "augment": {"mixup": 0.4}})
    batches = []
    for _ in range(12):
        plain.forward(Phase.TRAIN | Phase.FORWARD)
        batches.append((plain.features[0].data.copy(), plain.features[0].records.labels))
    for (x, labels), (other, others) in pairwise(batches):
        layer.forward(Phase.TRAIN | Phase.FORWARD)
        target.forward(Phase.TRAIN | Phase.FORWARD)
        records, data = layer.features[0].records, layer.features[0].data
        is_own = records.labels == labels
        np.testing.assert_array_equal(np.where(is_own, records.partner_labels, records.labels), others)
        share = np.where(is_own, records.mix_weights, 1 - records.mix_weights)
        wanted = share[:, None, None, None] * x + (1 - share)[:, None, None, None] * other
        np.testing.assert_allclose(data, wanted, atol=1e-5)
        # targets are labels, too
        np.testing.assert_allclose(target.features[0].data[:, 0], share * labels + (1 - share) * others, atol=1e-4)
        np.testing.assert_array_equal(target.features[0].records.mix_weights, records.mix_weights)
    for each in (layer, plain, target):
        each.close()


SCORES = {"name": "fc", "type": "InnerProduct", "srclayers": ["data"], "innerproduct_conf": {"num_output": 100}}


@pytest.mark.parametrize(
    ("layers", "key", "words"),
    [
        ([{"name": "y", "type": "RecordInput", "store_conf": {}}], "store_conf.augment", "Set the same mixup"),
        (
            [{"name": "y", "type": "Embedding", "srclayers": ["data"], "embedding_conf": {"vocab_size": 9}}],
            "type",
            "Embedding reads integers",
        ),
        (
            [
                SCORES,
                {
                    "name": "loss",
                    "type": "SoftmaxLoss",
                    "srclayers": ["fc", "data"],
                    "softmaxloss_conf": {"focal_gamma": 1},
                },
            ],
            "type",
            "reads one label of each",
        ),
    ],
)
def test_layers_that_mixed_records_would_mislead(
    stored: dict[str, Any], layers: list[dict[str, Any]], key: str, words: str
) -> None:
    store_conf = {**stored, "shape": [240], "augment": {"mixup": 0.2}}
    data = {"name": "data", "type": "RecordInput", "store_conf": store_conf}
    plain = {**store_conf, "augment": None}
    more = [{**each, **({"store_conf": plain} if "store_conf" in each else {})} for each in layers]
    with pytest.raises(ConfigError, match=words) as caught:
        build([data, *more])
    assert [".".join(map(str, problem.path[3:])) for problem in caught.value.problems] == [key]
    build([data, *more], phase=Phase.TEST)


@pytest.mark.parametrize("phase", [Phase.TEST, Phase.VALIDATION])
def test_other_phases_read_the_records_as_they_are(stored: dict[str, Any], phase: Phase) -> None:
    stored["augment"] = {**ALL, **MIXED}
    plain, same, changed = (
        nets_of(conf, 1, phase=each)
        for conf, each in (({**stored, "augment": None}, phase), (stored, phase), (stored, Phase.TRAIN))
    )
    wanted = step(plain)
    np.testing.assert_array_equal(step(same), wanted)
    assert not np.array_equal(step(changed)[:, : wanted.shape[1]], wanted)
    for net in (*plain, *same, *changed):
        net.close()


def test_what_is_dropped_is_zero_in_the_net(stored: dict[str, Any]) -> None:
    layer = layer_of("RecordInput", **{**stored, "augment": {"drop": 0.5}})
    layer.forward(Phase.TRAIN | Phase.FORWARD)
    plain = layer_of("RecordInput", **{**stored, "augment": None})
    plain.forward(Phase.TRAIN | Phase.FORWARD)
    values, wanted = layer.features[0].data, plain.features[0].data
    assert ((values == 0) | (values == wanted)).all()
    assert 0.4 < (values == 0).mean() < 0.6
    layer.close()
    plain.close()


def test_layers_beside_the_features_read_plain_records(stored: dict[str, Any]) -> None:
    conf = LayerConf.model_validate(
        {"name": "label", "type": "LabelInput", "store_conf": stored, "label_conf": {"column": "label"}}
    )
    layer = LAYERS.find("LabelInput")(conf, InputContext())
    assert isinstance(layer, StoreInput)
    assert layer.store_conf.augment is None


@pytest.mark.parametrize(
    ("shape", "augment", "key", "words"),
    [
        ([80], {"rotate": 3, "noise": 0.1}, "rotate", r"for images only: expected a shape .*, got \[80\]"),
        ([1, 10, 8], {"saturation": 0.1}, "saturation", "three channels only, got 1 channels"),
        (SHAPE, {"cutout": 11}, "cutout", "at most 10, as images are 10 x 8, got 11"),
    ],
)
def test_what_it_refuses(shape: Any, augment: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        layer_of("RecordInput", path="x", shape=shape, batchsize=2, augment=augment)
    assert [problem.path for problem in caught.value.problems] == [("store_conf", "augment", key)]
