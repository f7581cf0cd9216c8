"""An input layer hands the job's cache on to its store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from singa_dask.conf import LayerConf
from singa_dask.data.stores import STORES
from singa_dask.errors import ConfigError
from singa_dask.fs.cache import open_cache
from singa_dask.inputs.store_conf import StoreConf
from tests.contracts.records import floats, pixels
from tests.inputs.test_input import layer_of, read


@pytest.mark.parametrize(("kind", "backend"), [("RecordInput", "arrow"), ("CSVInput", "csv")])
def test_an_epoch_is_read_once_from_far(kind: str, backend: str, tmp_path: Path) -> None:
    records = pixels(2000, (10, 40)) if backend == "arrow" else floats(2000, (400,))
    url = f"memory://{tmp_path.name}-layer/r.{backend}"
    STORES.find(backend).write(url, records)
    cache = {"dir": str(tmp_path / "cache"), "limit_gb": 0.1}
    fetched = []
    for _ in range(2):
        layer = layer_of(kind, path=url, batchsize=500, shape=400, cache=cache)
        first = read(layer)
        for _ in range(3):
            read(layer)
        layer.close()
        fetched.append(open_cache(cache).misses)
        np.testing.assert_array_equal(first.reshape(500, -1), next(iter(records.values()))[:500].reshape(500, -1))
    assert fetched[0] == fetched[1] > 0
    assert open_cache(cache).hits > 0


def test_a_limit_of_nothing_is_refused() -> None:
    store = {"path": "x", "batchsize": 1, "shape": 1, "cache": {"limit_gb": 0}}
    with pytest.raises(ConfigError, match="limit_gb"):
        LayerConf.model_validate({"name": "data", "type": "RecordInput", "store_conf": store}).block(StoreConf)
