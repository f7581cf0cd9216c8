"""Shapes of records: compared as a whole, and images that are stored channels last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from singa_dask.conf import Phase
from singa_dask.data.stores import STORES
from singa_dask.errors import ConfigError, DataError
from singa_dask.inputs.open_records import open_records
from singa_dask.inputs.record_shapes import check_shape
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.net import memory
from tests.converting import convert
from tests.inputs.test_input import layer_of, read
from tests.net.jobs import build, layer

SHAPE = (3, 6, 5)


@pytest.fixture
def images() -> np.ndarray:
    """Return images (N, C, H, W)."""
    return np.random.default_rng(0).integers(0, 256, (40, *SHAPE), np.uint8)


@pytest.fixture
def urls(tmp_path: Path, images: np.ndarray) -> tuple[str, str]:
    """Write the images channels first, and channels last."""
    labels = np.arange(40)
    for name, array in (("first", images), ("last", images.transpose(0, 2, 3, 1))):
        np.savez(tmp_path / f"{name}.npz", images=np.ascontiguousarray(array), labels=labels)
        mean = str(tmp_path / f"mean-{name}.arrow")
        convert("npz", [str(tmp_path / f"{name}.npz")], str(tmp_path / f"{name}.arrow"), mean=mean)
    return str(tmp_path / "first.arrow"), str(tmp_path / "last.arrow")


def test_channels_last_are_refused_with_what_to_do(urls: tuple[str, str]) -> None:
    message = (
        r"last.arrow: records of \(6, 5, 3\), expected \(3, 6, 5\) from shape\. These look like \(height, width, "
        r"channels\): set layout: NHWC to read them so, or .* array\.transpose\(0, 3, 1, 2\)"
    )
    made = layer_of("RecordInput", path=urls[1], batchsize=4, shape=SHAPE)
    with pytest.raises(ConfigError, match=message):
        made.check_source()
    with pytest.raises(DataError, match=message):
        read(made)


@pytest.mark.parametrize(
    ("found", "conf", "hint"),
    [
        ((3, 6, 5), {"shape": [6, 5, 3]}, r"expected \(6, 5, 3\) from shape.*channels, .* set shape: \[3, 6, 5\]"),
        (
            (3, 6, 5),
            {"shape": [3, 6, 5], "layout": "NHWC"},
            r"expected \(6, 5, 3\) .*channels first: leave layout out",
        ),
        ((5, 6, 3), {"shape": [3, 6, 5]}, r"Set shape: \[5, 6, 3\], or shape: \[90\] for flat records"),
        ((9, 10), {"shape": [3, 6, 5]}, r"Set shape: \[9, 10\], or shape: \[90\] for flat records"),
        (
            (28, 29),
            {"shape": [29, 28]},
            r"records of \(28, 29\), expected \(29, 28\) .*Set shape: \[28, 29\], or shape: \[812\]",
        ),
        ((8, 7), {"shape": [55]}, r"records of \(8, 7\), expected \(55,\) from shape\.$"),
        ((90,), {"shape": [3, 6, 6]}, r"records of \(90,\), expected \(3, 6, 6\) from shape\.$"),
    ],
)
def test_other_shapes_are_refused(found: tuple[int, ...], conf: dict[str, Any], hint: str) -> None:
    with pytest.raises(DataError, match=hint):
        check_shape("url", found, StoreConf.model_validate(conf))


@pytest.mark.parametrize(
    ("found", "conf"),
    [
        ((1, 28, 28), {"shape": [28, 28]}),
        ((28, 28), {"shape": [1, 28, 28]}),
        ((28, 28, 1), {"shape": [28, 28]}),
        ((28, 28, 1), {"shape": [1, 28, 28], "layout": "NHWC"}),
        ((28, 28), {"shape": [1, 28, 28], "layout": "NHWC"}),
        ((784,), {"shape": [28, 28]}),
        ((1, 784), {"shape": [1, 28, 28]}),
        ((28, 28), {"shape": [784]}),
        ((90,), {"shape": [3, 6, 5], "layout": "NHWC"}),
        ((6, 5, 3), {"shape": [3, 6, 5], "layout": "NHWC"}),
    ],
)
def test_shapes_that_mean_the_same(found: tuple[int, ...], conf: dict[str, Any]) -> None:
    check_shape("url", found, StoreConf.model_validate(conf))


@pytest.mark.parametrize("shuffle", ["none", "full"])
@pytest.mark.parametrize("backend", ["arrow", "kvfile", "csv"])
def test_channels_last_are_read_right(
    backend: str, shuffle: str, tmp_path: Path, images: np.ndarray, urls: tuple[str, str]
) -> None:
    url = str(tmp_path / {"arrow": "x.arrow", "kvfile": "x.bin", "csv": "x.csv"}[backend])
    records = {"pixel": images.transpose(0, 2, 3, 1), "label": np.arange(40, dtype=np.int32)}
    STORES.find(backend).write(url, records)
    kind = "CSVInput" if backend == "csv" else "RecordInput"
    made = layer_of(kind, path=url, batchsize=8, shape=SHAPE, layout="NHWC", shuffle=shuffle)
    made.check_source()
    for _ in range(7):
        x = read(made)
        np.testing.assert_array_equal(x, images[made.features[0].records.labels])
    made.close()


def test_a_batch_is_not_copied_before_it_becomes_floats(urls: tuple[str, str]) -> None:
    made = layer_of("RecordInput", path=urls[1], batchsize=8, shape=SHAPE, layout="NHWC")
    stored = {"pixel": np.zeros((8, 6, 5, 3), np.uint8)}
    values, _ = made.parse(stored)
    assert values.shape == (8, *SHAPE)
    assert np.shares_memory(values, stored["pixel"])
    # as the memory of the net's images
    assert np.argsort(values.strides).tolist() == np.argsort(made.features[0].data.strides).tolist()
    made.close()


@pytest.mark.parametrize("mean", ["first", "last"])
def test_a_mean_has_the_layout_of_its_own_shape(
    mean: str, urls: tuple[str, str], images: np.ndarray, tmp_path: Path
) -> None:
    conf = {"batchsize": 40, "shape": SHAPE, "mean_file": str(tmp_path / f"mean-{mean}.arrow")}
    made = layer_of("RecordInput", path=urls[1], layout="NHWC", **conf)
    made.check_source()
    np.testing.assert_allclose(read(made), images - images.mean(axis=0), atol=1e-4)
    made.close()
    made = layer_of("RecordInput", path=urls[0], **conf)
    if mean == "first":
        made.check_source()
        np.testing.assert_allclose(read(made), images - images.mean(axis=0), atol=1e-4)
    else:
        with pytest.raises(ConfigError, match=r"mean-last.arrow: a record of \(6, 5, 3\), expected \(3, 6, 5\)"):
            made.check_source()
    made.close()


def test_a_mean_of_text_has_the_layout_of_the_records(
    urls: tuple[str, str], images: np.ndarray, tmp_path: Path
) -> None:
    mean = images.mean(axis=0)
    (tmp_path / "mean.csv").write_text(",".join(map(str, mean.transpose(1, 2, 0).reshape(-1).tolist())))
    conf = {"batchsize": 40, "shape": SHAPE, "mean_file": str(tmp_path / "mean.csv")}
    made = layer_of("RecordInput", path=urls[1], layout="NHWC", **conf)
    np.testing.assert_allclose(read(made), images - mean, atol=1e-4)
    made.close()


def test_preprocessing_gives_the_same_of_both_layouts(urls: tuple[str, str], tmp_path: Path) -> None:
    def values(url: str, mean: str, **more: Any) -> np.ndarray:
        store = {"path": url, "batchsize": 8, "shape": SHAPE, "mean_file": str(tmp_path / mean), **more}
        layers = [
            layer("data", "RecordInput", store_conf=store),
            layer("crop", "ImagePreprocess", "data", rgbimage_conf={"cropsize": 4, "mirror": True, "scale": 0.5}),
        ]
        net = build(layers, phase=Phase.TRAIN)
        for each in net.layers:
            memory.allocate(each)
        taken = []
        for _ in range(3):
            for each in net.layers:
                each.forward(Phase.TRAIN | Phase.FORWARD)
            taken.append(np.array(net.layers[-1].features[0].data))
        net.close()
        return np.concatenate(taken)

    expected = values(urls[0], "mean-first.arrow")
    np.testing.assert_array_equal(values(urls[1], "mean-last.arrow", layout="NHWC"), expected)


def test_the_layout_is_that_of_images() -> None:
    with pytest.raises(ValueError, match=r"NHWC is for images, .* Got shape \[784\]"):
        StoreConf.model_validate({"shape": [784], "layout": "NHWC"})


def test_options_of_a_format_are_keys(tmp_path: Path) -> None:
    conf = StoreConf.model_validate({"path": "x", "backend": "tfrecord", "classes": ["a", "b"], "label": "kind"})
    assert conf.user_conf == {"classes": ["a", "b"], "label": "kind"}
    assert not conf.is_table
    assert StoreConf.model_validate_json(conf.model_dump_json()) == conf
    with pytest.raises(ValidationError, match=r"user_conf.clases\n  unknown key. Did you mean 'classes'"):
        StoreConf.model_validate({"path": "x", "backend": "tfrecord", "user_conf": {"clases": ["a", "b"]}})
    with pytest.raises(ValidationError, match=r"classes\n  this key is in user_conf, too\."):
        StoreConf.model_validate({"backend": "tfrecord", "classes": ["a"], "user_conf": {"classes": ["b"]}})
    with pytest.raises(ValidationError, match=r"user_conf\n  expected a mapping"):
        StoreConf.model_validate({"backend": "tfrecord", "classes": ["a"], "user_conf": 3})
    with pytest.raises(ValidationError, match=r"dtype\n  unknown value 'int8'"):
        StoreConf.model_validate({"path": "x", "backend": "jsonl", "dtype": "int8"})
    with pytest.raises(ValidationError, match=r"dtype\n  unknown key"):
        StoreConf.model_validate({"path": "x", "backend": "npz", "dtype": "uint8"})


def test_label_names_the_label_of_every_format(tmp_path: Path) -> None:
    path = str(tmp_path / "x.npz")
    np.savez(path, images=np.zeros((3, 2), np.uint8), kind=np.arange(3), y=np.zeros(3, int), label=np.zeros(3, int))
    for more in ({}, {"backend": "npz"}):
        conf = StoreConf.model_validate({"path": path, "label": "kind", **more})
        with open_records(conf, conf.backend) as store:
            assert store.read_block(0)["label"].tolist() == [0, 1, 2]
    with pytest.raises(DataError, match=r"y and label could each be the label. Set user_conf: {label: NAME}"):
        open_records(StoreConf(path=path), "npz")
