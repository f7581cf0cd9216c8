"""Collections of Dask are computed on the cluster that ``client=`` names, whatever Dask is configured to use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pytest
from distributed import Client, get_worker

import singa_dask as sd
from singa_dask.runtime import local_cluster
from tests.inference.test_predicting import frame, model
from tests.jobs.conftest import KEYS, digits_net
from tests.runtime.processes import one_process

__all__ = ["model"]

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Start a cluster that is not the default one: by default this thread computes."""
    with one_process(tmp_path_factory.mktemp("scratch"), 2) as client, dask.config.set(scheduler="sync"):
        yield client


@pytest.fixture
def here() -> Iterator[Client]:
    """Start such a cluster in this process."""
    with local_cluster(1, 2, processes=False) as client, dask.config.set(scheduler="sync"):
        yield client


def on_worker(part: Any) -> Any:
    """Return a partition, if a Dask worker computes it."""
    get_worker()
    return part


def only_there(x: Any) -> Any:
    """Return a collection that no other process than a Dask worker can compute."""
    if hasattr(x, "divisions"):
        return x.map_partitions(on_worker, meta=x._meta)
    return x.map_blocks(on_worker, dtype=x.dtype)


def test_nets(here: Client, model: sd.Model) -> None:
    client = here
    x = dd.from_pandas(frame(20), npartitions=2)
    with pytest.raises(ValueError, match="No worker"):
        sd.test(model, only_there(x))
    for name in (client, client.scheduler.address):
        assert sd.test(model, only_there(x), client=name) == sd.test(model, x)
    found = sd.predict(model, only_there(x), client=client)
    assert found.divisions == x.divisions
    assert client.compute(found, sync=True).equals(sd.predict(model, x).compute())
    values = da.from_array(frame(20)[["a", "b"]].to_numpy(), chunks=(8, 1))
    found = sd.extract(model, only_there(values), "fc", client=client)
    assert found.chunks == ((8, 8, 4), (3,))
    assert (client.compute(found, sync=True) == sd.extract(model, values, "fc").compute()).all()
    with pytest.raises(sd.ConfigError, match=r"^client: an address. Expected a Client for Dask collections"):
        sd.predict(model, values, client=client.scheduler.address)
    for call in (sd.predict, sd.test):
        with pytest.raises(sd.ConfigError, match=r"^client: only for stored records and Dask collections"):
            call(model, frame(20), client=client)


@pytest.mark.soak
def test_estimators(client: Client) -> None:
    rng = np.random.default_rng(2)
    x, y, weights = rng.normal(size=(60, 3)), rng.integers(3, size=60), rng.uniform(0.5, 1, 60)
    given = [da.from_array(each, chunks=(20, *each.shape[1:])) for each in (x, y, weights)]
    there = [only_there(each) for each in given]
    options = {"hidden_layer_sizes": (4,), "max_iter": 1, "random_state": 1, "class_weight": "balanced"}
    wanted = sd.SingaClassifier(**options).fit(*given).score(*given)
    fitted = sd.SingaClassifier(**options, client=client.scheduler.address).fit(*there)
    for name in (client.scheduler.address, client):
        assert fitted.set_params(client=name).score(*there) == wanted


@pytest.mark.long
def test_names_of_classes_and_rates(client: Client, tmp_path: Path) -> None:
    names = da.from_array(np.array(["odd", "even"])[np.arange(200) % 2], chunks=100)
    x = da.from_array(np.random.default_rng(3).normal(size=(200, 28, 28)), chunks=(100, 28, 28))
    data = only_there(x), only_there(names)
    job = sd.Job(digits_net(), train_steps=2, **KEYS).replace({"neuralnet.layer[data].store_conf.path": "dask://train"})
    address = client.scheduler.address
    sd.train(job, data=data, client=address, run_dir=str(tmp_path / "run"), progress=False)
    learnt = sd.load_model(str(tmp_path / "run"))
    assert learnt.class_names == ("even", "odd")
    digits = sd.Job(digits_net(), train_steps=2, **KEYS)
    assert (sd.find_rate(digits, client=client, steps=60).losses == sd.find_rate(digits, steps=60).losses).all()
