"""Jobs as values: built in Python, read from files, changed, written back."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import singa_dask as sd
from singa_dask.conf import Phase
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.jobs import pages
from singa_dask.layers.neuron import InnerProduct
from tests.jobs.conftest import KEYS, SGD, digits_net


def test_a_job_built_in_python_is_that_of_its_file(job: sd.Job, tmp_path: Path) -> None:
    job.save(tmp_path / "job.yaml")
    assert sd.load(tmp_path / "job.yaml") == job
    assert (tmp_path / "job.yaml").read_text() == job.to_yaml()
    assert repr(job) == "<Job 'tiny': 5 layers, 6 steps>"


def test_lists_of_one_value_are_written_so_that_they_are_read_again(job: sd.Job) -> None:
    reading = {"na_values": ["unknown"], "categories": {"city": ["Oslo"]}, "features": ["city"], "label": ["y"]}
    one_each = job.replace({f"neuralnet.layer[data].store_conf.{key}": value for key, value in reading.items()})
    assert one_each.replace({}) == one_each
    assert "features: city" in one_each.to_yaml()
    conf = one_each.conf.neuralnet.layer[0].given_block(StoreConf)
    assert conf is not None
    assert {key: getattr(conf, key) for key in reading} == reading


def test_layers_have_names_and_are_fed_by_the_one_before() -> None:
    layers = digits_net()["layer"]
    assert [each["name"] for each in layers] == ["data", "innerproduct", "relu", "innerproduct2", "softmaxloss"]
    sources = [each.get("srclayers") for each in layers]
    assert sources == [None, ["data"], ["innerproduct"], ["relu"], ["innerproduct2", "data"]]


def test_a_chosen_name_is_not_given_to_another_layer() -> None:
    net = sd.Net([sd.layer("ReLU"), sd.layer("Tanh", name="relu", srclayers="relu2")])
    assert [each["name"] for each in net["layer"]] == ["relu2", "relu"]


def test_layers_by_class() -> None:
    made = sd.layer(InnerProduct, num_output=3, partition_dim=1)
    assert made == {"type": "InnerProduct", "innerproduct_conf": {"num_output": 3}, "partition_dim": 1}


def test_a_class_that_no_process_could_find() -> None:
    class Own(InnerProduct):
        pass

    with pytest.raises(sd.ConfigError, match=r"Own is not a registered layer type\. Put the class in a module"):
        sd.layer(Own)


def test_all_mistakes_of_a_job_at_once() -> None:
    net = sd.Net([*digits_net()["layer"], sd.layer("ReLU", slope=1)])
    with pytest.raises(sd.ConfigError) as caught:
        sd.Job(net, **{**KEYS, "updater": {**SGD, "type": "SGX"}}, train_steps="many")
    places = {tuple(line.split(": ")[:2]) for line in str(caught.value).splitlines()}
    assert places == {
        ("job", "neuralnet.layer[relu2].slope"),
        ("job", "train_steps"),
        ("job", "updater.type"),
    }
    assert "Did you mean 'SGD'?" in str(caught.value)


def test_changed_jobs(job: sd.Job) -> None:
    rate = np.float32(0.25)
    other = job.replace({"updater.learning_rate.base_lr": rate, "gpu": []}, cluster="allreduce")
    assert other.conf.updater.learning_rate.base_lr == 0.25
    assert other.conf.cluster.nworkers_per_group == 2
    assert job.conf.updater.learning_rate.base_lr == 0.05
    with pytest.raises(sd.ConfigError, match=r"^set updater.momentun=1: .*Did you mean 'momentum'"):
        job.replace({"updater.momentun": 1})


def test_a_value_that_is_set_on_a_job_is_refused(job: sd.Job) -> None:
    with pytest.raises(AttributeError, match=r"Use job = job.replace\({'train_steps': 3}\)"):
        job.train_steps = 3  # type: ignore[attr-defined]


def test_nets_of_a_job(job: sd.Job) -> None:
    nets = job.replace({"test_freq": 3, "test_steps": 2}).nets()
    n = 784 * 16 + 16 + 16 * 10 + 10
    assert {phase: net.n_params for phase, net in nets.items()} == {Phase.TRAIN: n, Phase.TEST: n}
    with pytest.raises(sd.ConfigError, match=r"store_conf\.path"):
        job.replace({"neuralnet.layer[data].store_conf.path": "absent.arrow"}).nets()


def test_a_notebook_shows_the_layers_of_a_job(job: sd.Job) -> None:
    page = job._repr_html_().replace(' style="text-align:left"', "")
    assert "<td>innerproduct</td><td>InnerProduct</td><td>data</td><td>(20, 16)</td><td>12,560</td>" in page
    # a job whose net cannot be built is shown, too
    broken = job.replace({"neuralnet.layer[softmaxloss].srclayers": ["relu", "innerproduct"]})
    assert ">softmaxloss</td>" in broken._repr_html_()


def test_a_notebook_shows_pictures_of_nets(job: sd.Job) -> None:
    if not shutil.which("dot"):
        pytest.skip("needs the program dot of Graphviz")
    for shown, n in ((job, 1), (job.nets(), 1)):
        assert shown._repr_html_().count('<img style="max-width:100%;background:white"') == n


def test_pictures_are_left_out_where_they_cannot_be_drawn(job: sd.Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_svg", lambda dot: b"")
    assert "<table>" in job._repr_html_() and "<img" not in job._repr_html_()
    assert (
        job.nets()._repr_html_()
        == "<pre>{&lt;Phase.TRAIN: 1&gt;: &lt;NeuralNet: 5 layers, 12,730 values to learn&gt;}</pre>"
    )


def test_a_layer_of_the_users_own(tmp_path: Path) -> None:
    text = "from singa_dask import Layer\n\nclass Same(Layer):\n    def setup(self):\n        self.add_output((3,))\n"
    (tmp_path / "mine_of_jobs.py").write_text(text)
    layers = [digits_net()["layer"][0], sd.layer("mine_of_jobs.Same"), sd.layer("InnerProduct", num_output=10)]
    job = sd.Job(sd.Net(layers), train_steps=1, modules=[str(tmp_path / "mine_of_jobs.py")], **KEYS)
    assert [(each.name, each.srclayers) for each in job.conf.neuralnet.layer[1:]] == [
        ("same", ["data"]),
        ("innerproduct", ["same"]),
    ]
    assert "<td" in job._repr_html_()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "Dense"}, "unknown layer type 'Dense'. Did you mean 'InnerProduct'?"),
        ({"type": "Conv2d"}, "unknown layer type 'Conv2d'. Did you mean 'Convolution'?"),
        ({"type": "Dropuot"}, "unknown layer type 'Dropuot'. Did you mean 'Dropout'?"),
        ({"type": "Flatten"}, "unknown layer type 'Flatten'. Leave it out: "),
    ],
)
def test_names_of_other_libraries_are_known(given: dict[str, Any], message: str) -> None:
    with pytest.raises(sd.ConfigError, match=re.escape(message)):
        sd.layer(**given)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("units", "Did you mean 'num_output'? Set it in innerproduct_conf: {num_output: ...}."),
        ("num_outputs", "Did you mean 'num_output'? Set it in innerproduct_conf: {num_output: ...}."),
        ("scrlayers", "Did you mean 'srclayers'?"),
    ],
)
def test_keys_of_a_layer_are_suggested(key: str, hint: str) -> None:
    with pytest.raises(sd.ConfigError) as caught:
        sd.Job(sd.Net([sd.layer("InnerProduct", **{key: 3})]), train_steps=1, **KEYS)
    assert f"{key}: unknown key. {hint}" in str(caught.value)


def test_arguments_that_train_does_not_take(job: sd.Job) -> None:
    wrong: Any
    for wrong, message in (
        ({"epochs": 3}, "unknown argument 'epochs'. It is a key of the job: train(job.replace({'epochs': 3}))."),
        ({"rundir": "x"}, "unknown argument 'rundir'. Did you mean 'run_dir'?"),
    ):
        with pytest.raises(TypeError, match=re.escape(message)):
            sd.train(job, **wrong)


def test_a_module_of_a_job_that_starts_a_job(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text("import singa_dask as sd\n\nsd.train('job.yaml')\n")
    with pytest.raises(sd.ConfigError, match=re.escape("Put the call of sd.train or sd.start under if __name__")):
        sd.Job(sd.Net([sd.layer("ReLU")]), modules=[str(script)], train_steps=1, **KEYS)


def test_batches_of_a_wrong_size(job: sd.Job, tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", X=np.zeros((15, 784), np.uint8), y=np.arange(15) % 10)
    data = "neuralnet.layer[data].store_conf"
    few = job.replace({f"{data}.path": str(tmp_path / "few.npz")})
    with pytest.warns(UserWarning, match="batchsize: a worker group has 15 records, so a batch of 20"):
        sd.train(few, run_dir=str(tmp_path / "few"), progress=False)
    layers = [*digits_net()["layer"]]
    layers.insert(2, sd.layer("BatchNorm", name="bn", srclayers="innerproduct"))
    layers[3]["srclayers"] = ["bn"]
    one = sd.Job({"layer": layers}, train_steps=1, **KEYS).replace({f"{data}.batchsize": 1})
    with pytest.warns(UserWarning, match="layer.bn.: in training this layer normalises one value for each channel"):
        sd.train(one, run_dir=str(tmp_path / "one"), progress=False)


def test_a_place_without_a_number_is_named(job: sd.Job, tmp_path: Path) -> None:
    model = sd.load_model(sd.train(job, run_dir=str(tmp_path / "run"), progress=False))
    record = [0.0] * 784
    record[3] = None  # type: ignore[call-overload]
    with pytest.raises(sd.DataError, match=r"row 1, column 3: no value \(null\), expected a number"):
        model.predict([[0.0] * 784, record])
