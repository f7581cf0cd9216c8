"""ImagePreprocess: what is cut and mirrored, the same for any number of workers and after a resume, from raw pixels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.data.stores import STORES
from singa_dask.errors import ConfigError
from singa_dask.layers import Context, Feature, Layer, Raw, RecordIds
from singa_dask.net import NeuralNet
from singa_dask.testing.case import forward, source, wire
from tests.contracts.foreign import png
from tests.net.jobs import build, layer

SHAPE = (3, 9, 8)


def images(n: int, labels: bool = True) -> Feature:
    """Return images that all differ, with numbers and epochs as from a store."""
    made = source((n, *SHAPE), labels=range(n) if labels else None, grad=False)
    made.records = RecordIds(made.records.labels, np.arange(n), np.zeros(n, np.int64))
    return made


def preprocess(x: Feature, phase: Phase = Phase.TRAIN, **conf: Any) -> Layer:
    return wire("ImagePreprocess", [x], Context(phase=phase, dtype=np.dtype(np.float64)), rgbimage_conf=conf)


def find(image: np.ndarray, cut: np.ndarray) -> tuple[int, int, bool]:
    """Return row and column of a cut in its image, and whether it was mirrored."""
    size = cut.shape[1]
    found = [
        (top, left, mirrored)
        for top in range(image.shape[1] - size + 1)
        for left in range(image.shape[2] - size + 1)
        for mirrored in (False, True)
        if np.array_equal(cut[..., ::-1] if mirrored else cut, image[:, top : top + size, left : left + size])
    ]
    assert len(found) == 1
    return found[0]


def test_training_cuts_anywhere_and_mirrors_one_of_two() -> None:
    x = images(4000)
    made = preprocess(x, cropsize=7, mirror=True)
    forward(made)
    cuts = made.features[0].data
    assert cuts.shape == (4000, 3, 7, 7)
    places = [find(image, cut) for image, cut in zip(x.data, cuts, strict=True)]
    counts = np.unique(places, axis=0, return_counts=True)[1]
    # 3 rows, 2 columns, mirrored or not: a third of 1000 each, within four standard deviations
    assert len(counts) == 12
    assert np.abs(counts - 4000 / 12).max() < 4 * np.sqrt(4000 / 12)


@pytest.mark.parametrize(("cropsize", "size"), [(0, (9, 8)), (8, (8, 8))])
def test_images_are_mirrored_even_where_nothing_is_cut_off(cropsize: int, size: tuple[int, int]) -> None:
    x = images(64)
    made = preprocess(x, cropsize=cropsize, mirror=True)
    forward(made)
    y = made.features[0].data
    assert y.shape == (64, 3, *size)
    turned = sum(
        any(np.array_equal(y[i][..., ::-1], x.data[i, :, t : t + size[0]]) for t in range(2)) for i in range(64)
    )
    assert 16 < turned < 48


def test_padded_images_are_moved_in_training_only() -> None:
    x = images(500)
    padded = np.pad(x.data, [(0, 0), (0, 0), (2, 2), (2, 2)])
    made = preprocess(x, pad=2, cropsize=8, scale=0.5)
    for _ in range(2):
        forward(made)
    cuts = made.features[0].data
    places = [find(image, 2 * cut)[:2] for image, cut in zip(padded, cuts, strict=True)]
    assert {top for top, _ in places} == set(range(6)) and {left for _, left in places} == set(range(5))
    tested = preprocess(x, Phase.TEST, pad=2, cropsize=8)
    forward(tested)
    np.testing.assert_array_equal(tested.features[0].data, padded[:, :, 2:10, 2:10])


def test_zeros_are_added_after_images_are_normalised() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (5, *SHAPE), np.uint8)
    x = images(5)
    x.raw = Raw(pixels, 100.0, 50.0)
    made = preprocess(x, pad=1)
    forward(made)
    wanted = np.pad((pixels - 100.0) / 50, [(0, 0), (0, 0), (1, 1), (1, 1)])
    np.testing.assert_allclose(made.features[0].data, wanted)


@pytest.mark.parametrize("phase", [Phase.TEST, Phase.VALIDATION])
def test_tests_cut_out_the_centre(phase: Phase) -> None:
    x = images(5)
    made = preprocess(x, phase, cropsize=6, mirror=True, scale=0.5)
    forward(made)
    np.testing.assert_array_equal(made.features[0].data, x.data[:, :, 1:7, 1:7] / 2)
    assert made.features[0].records.labels is x.records.labels
    assert made.features[0].records is x.records


def test_a_record_is_cut_by_its_number_and_epoch_alone() -> None:
    x = images(50)
    made = preprocess(x, cropsize=5, mirror=True)
    forward(made)
    first = made.features[0].data.copy()
    shuffled = np.random.default_rng(0).permutation(50)
    x.data[...], x.records = x.data[shuffled], replace(x.records, ids=x.records.ids[shuffled])
    forward(made)
    np.testing.assert_array_equal(made.features[0].data, first[shuffled])
    x.records = replace(x.records, epochs=np.repeat([0, 1], 25))
    forward(made)
    same = (made.features[0].data == first[shuffled]).all(axis=(1, 2, 3))
    assert same[:25].all()
    assert same[25:].sum() < 10


def test_records_without_numbers_are_cut_by_step_and_row() -> None:
    x = images(8, labels=False)
    x.records = RecordIds(x.records.labels)
    made = preprocess(x, cropsize=5, mirror=True)
    forward(made)
    first = made.features[0].data.copy()
    made.context.step = 1
    forward(made)
    assert not np.array_equal(made.features[0].data, first)
    assert made.features[0].records.labels is None


@pytest.mark.parametrize(
    ("shape", "grad", "block", "path", "words"),
    [
        ((4, 28, 28), False, {}, ("srclayers",), r"records of \(28, 28\), expected images"),
        ((4, 3, 9, 8), True, {}, ("srclayers",), "has no gradient"),
        ((4, 3, 9, 8), False, {"cropsize": 9}, ("rgbimage_conf", "cropsize"), "at most 8, as images are 9 x 8, got 9"),
        ((4, 3, 9, 8), False, {"cropsize": 13, "pad": 2}, ("rgbimage_conf", "cropsize"), "13 x 12 with their padding"),
        ((4, 3, 9, 8), False, {"meanfile": "m"}, ("rgbimage_conf", "meanfile"), "mean_file in store_conf"),
    ],
)
def test_what_it_refuses(
    shape: tuple[int, ...], grad: bool, block: dict[str, Any], path: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        wire("ImagePreprocess", [source(shape, grad=grad)], rgbimage_conf=block)
    assert caught.value.problems[0].path == path


# -- behind a store ------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Any]:
    """Write 100 images, a mean and a standard deviation; return the store_conf of a layer that reads them."""
    random = np.random.default_rng(3)
    pixel = random.integers(0, 256, (100, *SHAPE), np.uint8)
    records = {"pixel": pixel, "label": np.arange(100, dtype=np.int32)}
    conf: dict[str, Any] = {"shape": SHAPE, "batchsize": 12, "shuffle": "block"}
    for key, made in (
        ("path", records),
        ("mean_file", {"data": pixel.mean(axis=0, dtype=np.float32)[None]}),
        ("std_file", {"data": pixel.std(axis=0, dtype=np.float32)[None]}),
    ):
        conf[key] = str(tmp_path / f"{key}.arrow")
        STORES.find("arrow").write(conf[key], made, block_bytes=1000)
    return conf


def net_of(store_conf: dict[str, Any], *more: dict[str, Any], **context: Any) -> NeuralNet:
    block = {"cropsize": 6, "mirror": True, "scale": 0.25}
    net = build(
        [
            {"name": "data", "type": "RecordInput", "store_conf": store_conf},
            layer("cut", "ImagePreprocess", "data", rgbimage_conf=block),
            *more,
        ],
        **context,
    )
    net.allocate()
    return net


def step(net: NeuralNet) -> Any:
    for each in net.layers:
        each.forward(net.context.phase | Phase.FORWARD)
    return net.name2layer("cut").features[0].data.copy()


@pytest.mark.parametrize("shuffle", ["none", "block", "full"])
def test_images_are_the_same_for_any_number_of_workers(stored: dict[str, Any], shuffle: str) -> None:
    stored["shuffle"] = shuffle
    nets = {n: [net_of(stored, worker=i, n_workers=n) for i in range(n)] for n in (1, 2, 4)}
    for _ in range(30):
        steps = {n: np.concatenate([step(net) for net in shares]) for n, shares in nets.items()}
        np.testing.assert_array_equal(steps[2], steps[1])
        np.testing.assert_array_equal(steps[4], steps[1])
    for shares in nets.values():
        for net in shares:
            net.close()


def test_images_are_the_same_after_a_resume(stored: dict[str, Any]) -> None:
    net = net_of(stored)
    for _ in range(13):
        step(net)
    cursors = net.cursors()
    rest = [step(net) for _ in range(20)]
    resumed = [net_of(stored, worker=i, n_workers=2) for i in range(2)]
    for each in resumed:
        each.seek(cursors)
    for expected in rest:
        np.testing.assert_array_equal(np.concatenate([step(each) for each in resumed]), expected)
    for each in (net, *resumed):
        each.close()


def test_an_epoch_ends_within_a_batch(stored: dict[str, Any]) -> None:
    net = net_of({**stored, "shuffle": "none"})
    for _ in range(9):
        step(net)
    feature = net.name2layer("cut").features[0]
    assert feature.records.ids.tolist() == [96, 97, 98, 99, *range(8)]
    assert feature.records.epochs.tolist() == [0] * 4 + [1] * 8
    net.close()


@pytest.mark.parametrize("phase", [Phase.TRAIN, Phase.TEST])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"mean_file": "", "std_file": "", "mean_value": 127.5, "std_value": 60.0},
        {"mean_file": "", "std_file": "", "mean_value": [127.5, 120.0, 90.0], "std_value": [60.0, 50.0, 40.0]},
    ],
)
def test_pixels_stay_bytes_until_they_are_cut(stored: dict[str, Any], phase: Phase, more: dict[str, Any]) -> None:
    stored |= more
    scores = layer("scores", "Softmax", "cut")
    bytes_ = net_of(stored, scores, layer("loss", "SoftmaxLoss", "scores", "data"), phase=phase)
    floats = net_of(stored, layer("other", "Softmax", "data"), phase=phase)
    for _ in range(12):
        np.testing.assert_array_equal(step(bytes_), step(floats))
    raw, made = bytes_.name2layer("data").features[0], floats.name2layer("data").features[0]
    assert not raw.has_data
    assert raw.raw is not None
    assert raw.raw.values.dtype == np.uint8
    assert made.raw is None
    assert made.data.dtype == np.float32
    bytes_.close()
    floats.close()


def test_image_files_become_the_shape_that_the_job_wants(tmp_path: Path) -> None:
    for name in ("cats", "dogs"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(2):
            pixel = np.random.default_rng(i).integers(0, 256, (3, 20 + i, 30), np.uint8)
            (tmp_path / "pets" / name / f"{i}.png").write_bytes(png(pixel))
    conf = {"path": str(tmp_path / "pets"), "backend": "image-folder", "batchsize": 4}
    for more, shape in (({"resize": [9, 8]}, (3, 9, 8)), ({"resize": [9, 8], "channels": 1}, (1, 9, 8))):
        net = net_of({**conf, **more, "shape": shape}, phase=Phase.TEST)
        assert step(net).shape == (4, shape[0], 6, 6)
        assert net.name2layer("cut").features[0].records.labels.tolist() == [0, 0, 1, 1]
        net.close()


@pytest.mark.parametrize("more", [{"resize": [9, 8]}, {"channels": 1}])
def test_only_image_files_are_resized(stored: dict[str, Any], more: dict[str, Any]) -> None:
    net = build([{"name": "data", "type": "RecordInput", "store_conf": {**stored, **more}}])
    with pytest.raises(
        ConfigError, match=r"store_conf.path: .*(resize|channels) is for image-folder, image-list, .*, not for arrow"
    ):
        net.check_sources()


@pytest.mark.parametrize("resize", [[9], [9, 8, 7]])
def test_a_size_is_two_numbers(stored: dict[str, Any], resize: list[int]) -> None:
    with pytest.raises(ValueError, match=r"expected two numbers, height and width"):
        net_of({**stored, "resize": resize})


def test_several_layers_may_read_the_same_cut_images(stored: dict[str, Any]) -> None:
    net = net_of(stored, layer("one", "Softmax", "cut"), layer("two", "Softmax", "cut"))
    step(net)
    assert [each.name for each in net.layers] == ["data", "cut", "one", "two"]
    np.testing.assert_array_equal(*(net.name2layer(name).features[0].data for name in ("one", "two")))
    net.close()
