"""Nothing that is wrong with data or nets is silent."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.first_hour.conftest import STORE, Desk

pytestmark = pytest.mark.long

NHWC = ["--set", f"{STORE}.path=nhwc.npz", "--set", f"{STORE}.shape=[3,32,32]"]


class Case(NamedTuple):
    """A command on ``job.yaml``, and what a user has to be shown on stderr."""

    arguments: list[str]
    code: int
    shown: str
    edits: tuple[tuple[str, str], ...] = ()


LOSS = "    - name: loss\n"
NO_LOSS = ((f"{LOSS}      type: SoftmaxLoss\n      srclayers: [fc, data]\n", ""),)
SOFTMAX = ((LOSS, f"    - {{name: soft, type: Softmax, srclayers: fc}}\n{LOSS}"), ("[fc,", "[soft,"))
ALONE = ((LOSS, f"    - {{name: alone, type: ReLU, srclayers: fc}}\n{LOSS}"),)
CASES = {
    "a net without a loss": Case(["validate"], 2, r"^job\.yaml:\d+:\d+: .*no loss layer.*Add a SoftmaxLoss", NO_LOSS),
    "so does run": Case(["run"], 2, r"^job\.yaml:\d+:\d+: .*no loss layer", NO_LOSS),
    "images of height, width, channels": Case(["validate", *NHWC], 2, r"\(32, 32, 3\), expected \(3, 32, 32\).*NHWC"),
    "an empty field of a CSV": Case(
        ["run", "--set", f"{STORE}.path=empty.csv"], 1, r"empty\.csv.*line 6, column '4': it is empty"
    ),
    "labels that do not fit": Case(
        ["run", "--set", f"{STORE}.path=wide.npz"], 1, r"wide\.npz.*record 0: the label 4294967296 does not fit"
    ),
    "a block that the layer does not read": Case(
        ["validate", "--set", "neuralnet.layer[loss].store_conf={path: x, batchsize: 3}"],
        0,
        "warning: SoftmaxLoss does not read this block",
    ),
    "a key that the updater does not read": Case(
        ["run", "--set", "updater.type=Adam"], 0, r"^job\.yaml:10:3: updater\.momentum: warning: Adam does not read"
    ),
    "the same with --strict": Case(
        ["run", "--set", "updater.type=Adam", "--strict"], 2, r"^job\.yaml:10:3: updater\.momentum: Adam does not read"
    ),
    "a softmax taken twice": Case(["validate"], 0, r"^job\.yaml:\d+:\d+: .*warning: .*applied twice", SOFTMAX),
    "a layer nobody reads": Case(["validate"], 0, r"^job\.yaml:\d+:\d+: .*\[alone\]: warning: no layer.* reads", ALONE),
    "a layer larger than the machine": Case(
        ["validate", "--set", "neuralnet.layer[fc].innerproduct_conf.num_output=100000000000"],
        2,
        r"^job\.yaml:17:7: neuralnet\.layer\[fc\]: .* needs 5\d\d\.\d TiB of memory",
    ),
    "a batch larger than the machine": Case(
        ["run", "--set", f"{STORE}.batchsize=100000000"], 2, r"^job\.yaml:14:7: .*\[data\]: .* needs 2\d\d\.\d GiB"
    ),
    "more workers than cores": Case(
        ["validate", "--set", "cluster={nworkers_per_group: 1000}", "--set", f"{STORE}.batchsize=1000"],
        0,
        "warning: the job has 1000 workers, but this machine",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_said(desk: Desk, name: str) -> None:
    case = CASES[name]
    text = desk.job
    for old, new in case.edits:
        assert old in text
        text = text.replace(old, new)
    desk.write("job.yaml", text)
    verb, *options = case.arguments
    done = desk.singa(verb, "job.yaml", *options)
    assert done.code == case.code, done.err
    assert re.search(case.shown, done.err, re.MULTILINE), done.err
    if case.code == 2:
        assert not (desk.directory / "runs").exists()


@pytest.mark.parametrize("source", ["csv empty.csv", "npz wide.npz"])
def test_so_says_convert(desk: Desk, source: str) -> None:
    done = desk.singa("convert", *source.split(), "made.arrow")
    assert done.code in (1, 2)
    assert re.search("it is empty|does not fit", done.err), done.err
    assert not (desk.directory / "made.arrow").exists()


def test_images_of_height_width_channels_train_where_the_job_says_so(desk: Desk) -> None:
    done = desk.singa("run", "job.yaml", *NHWC, "--set", f"{STORE}.layout=NHWC", "--strict")
    assert done.code == 0, done.err
