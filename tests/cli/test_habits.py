"""What people bring from other programs, and from the shell: names, paths, standard input, completion."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import singa_dask as sd
from singa_dask.cli import main
from singa_dask.paths import expand
from tests.cli.conftest import ROOT, Call

READ = "srclayers: data"
CLUSTERS = sorted((ROOT / "configs" / "cluster").glob("*.yaml"))


def problem(call: Call, path: Path, *words: str) -> str:
    """Return the one mistake that ``validate`` finds, without the name of the file."""
    result = call("validate", path, *words)
    assert result.exit_code == 2, result.output
    [line] = result.stderr.splitlines()
    return line.removeprefix(f"{path}:")


# -- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "hint"),
    [
        ("type: InnerProduct", "type: Dense", "unknown layer type 'Dense'. Did you mean 'InnerProduct'?"),
        ("type: InnerProduct", "type: Linear", "Did you mean 'InnerProduct'?"),
        ("type: InnerProduct", "type: SelfAttention", "Did you mean 'MultiHeadAttention'?"),
        ("type: InnerProduct", "type: FullyConnected", "Did you mean 'InnerProduct'?"),
        ("type: InnerProduct", "type: Conv2D", "Did you mean 'Convolution'?"),
        ("type: InnerProduct", "type: MaxPool2D", "Set type: Pooling, with pooling_conf: {pool: MAX}."),
        ("type: SoftmaxLoss", "type: CrossEntropy", "Did you mean 'SoftmaxLoss'?"),
        ("type: SoftmaxLoss", "type: MSE", "Did you mean 'EuclideanLoss'?"),
        ("type: UniformSqrtFanIn", "type: Xavier", "Leave init out: weights of InnerProduct and Convolution"),
        ("type: UniformSqrtFanIn", "type: glorot_uniform", "UniformSqrtFanInOut, low: -2.449, high: 2.449. Known: "),
        ("type: UniformSqrtFanIn", "type: He", "Set type: GaussianSqrtFanIn, std: 1.414. Known: "),
        ("type: UniformSqrtFanIn", "type: Kaiming", "Set type: GaussianSqrtFanIn, std: 1.414. Known: "),
        ("type: SGD", "type: adamax", "Did you mean 'AdamMax'?"),
        ("{num_output: 10}", "{units: 10, num_output: 10}", "unknown key. Did you mean 'num_output'?"),
        (READ, f"{READ}, units: 3", "Did you mean 'num_output'? Set it in innerproduct_conf: {num_output: ...}."),
        (READ, f"{READ}, activation: relu", "An activation is a layer of its own: add one of"),
        (READ, f"{READ}, filters: 3", "Set convolution_conf: {num_filters: N}. Known: "),
        (READ, f"{READ}, phase: TRAIN", "unknown key. Did you mean 'include'?"),
        (READ, f"{READ}, include: training", "unknown value 'training'. Did you mean 'train'?"),
        ("base_lr: 0.05", "lr: 0.05", "unknown key. Did you mean 'base_lr'?"),
        ("momentum: 0.9", "lr: 0.9", "unknown key. Did you mean 'learning_rate'?"),
        ("seed: 7", "num_epochs: 7", "unknown key. Did you mean 'epochs'?"),
        ("seed: 7", "batch_size: 7", "Set it in the store_conf of the input layers."),
        ("batchsize: 20", "batch_size: 20, batchsize: 20", "unknown key. Did you mean 'batchsize'?"),
        ("seed: 7", "optimizer: {type: Adam}", "unknown key. Did you mean 'updater'?"),
        ("seed: 7", "lr: 0.1", "Set it in updater: {learning_rate: {type: Fixed, base_lr: 0.01}}."),
        ("seed: 7", "layers: [fc]", "Set neuralnet: {layer: [...]}."),
        ("seed: 7", "loss: mse", "A loss is a layer: add one of type SoftmaxLoss or EuclideanLoss to neuralnet."),
        ("{type: Fixed, base_lr: 0.05}", "0.1", "got 0.1. Write learning_rate: {type: Fixed, base_lr: 0.1}."),
        ("{type: Fixed, base_lr: 0.05}", "Fixed", "got 'Fixed'. Write learning_rate: {type: Fixed}."),
        ("{type: UniformSqrtFanIn}", "Gaussian", "got 'Gaussian'. Write init: {type: Gaussian}."),
        ("{type: UniformSqrtFanIn}", "0.5", "got 0.5. Write init: {type: Constant, value: 0.5}."),
        ("{alg: BP}", "BP", "got 'BP'. Write train_one_batch: {alg: BP}."),
    ],
)  # fmt: skip
def test_names_of_other_programs(call: Call, job: Path, ours: str, theirs: str, hint: str) -> None:
    head, found, tail = job.read_text().partition(ours)
    assert found
    job.write_text(head + (theirs.replace(", ", "\n      ") if ours == READ else theirs) + tail)
    assert hint in problem(call, job)


@pytest.mark.parametrize(
    ("name", "verb"),
    [("train", "run"), ("trian", "run"), ("rnu", "run"), ("eval", "test"), ("valdate", "validate"), ("draw", "graph")],
)
def test_verbs_of_other_programs(call: Call, name: str, verb: str) -> None:
    result = call(name, "job.yaml")
    assert result.exit_code == 2
    assert f"No such command {name!r}. Did you mean {verb!r}? Known: attach, check, checkpoint" in result.stderr


def test_a_verb_like_no_other(call: Call) -> None:
    assert "No such command 'xyzzy'. Known: attach" in call("xyzzy").stderr


# -- clusters by name ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_clusters_of_the_repository_are_in_the_package(call: Call, job: Path, path: Path) -> None:
    assert path.read_bytes() == (ROOT / "singa_dask" / "conf" / "files" / "clusters" / path.name).read_bytes()
    by_name, by_file = call("validate", job, "--cluster", path.stem), call("validate", job, "--cluster", path)
    assert by_name.exit_code == 0, by_name.output
    assert by_name.stdout == by_file.stdout


def test_no_other_cluster_is_in_the_package() -> None:
    files = (ROOT / "singa_dask" / "conf" / "files" / "clusters").iterdir()
    assert sorted(path.name for path in files) == [path.name for path in CLUSTERS]


def test_an_unknown_cluster(call: Call, job: Path) -> None:
    result = call("validate", job, "--cluster", "alreduce")
    assert result.exit_code == 2
    assert result.stderr == (
        "--cluster alreduce: there is no file and no built-in cluster of this name. Did you mean 'allreduce'? "
        "Known: allreduce, downpour, hogwild, hybrid, sandblaster, single.\n"
    )


@pytest.mark.parametrize(("cluster", "groups"), [("allreduce:3", (1, 3)), ("hogwild:3", (3, 1))])
def test_a_number_of_workers(call: Call, job: Path, cluster: str, groups: tuple[int, int]) -> None:
    conf = sd.load(job).replace(cluster=cluster).conf.cluster
    assert (conf.nworker_groups, conf.nworkers_per_group) == (conf.nserver_groups, conf.nservers_per_group) == groups
    assert call("validate", job, "--cluster", cluster).exit_code == 0


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ("downpour:3", "a number of workers is unclear for downpour. Expected one for allreduce or hogwild."),
        ("allreduce:0", "'0' is not a number of workers. Expected such as allreduce:3."),
    ],
)
def test_a_number_of_workers_that_is_refused(call: Call, job: Path, cluster: str, said: str) -> None:
    result = call("validate", job, "--cluster", cluster)
    assert (result.exit_code, f"--cluster {cluster}: {said}" in result.stderr) == (2, True), result.stderr


def test_a_file_comes_before_a_cluster_of_ours(
    call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("allreduce").write_text("nworker_groups: 1\n")
    assert "worker-0-1" not in call("validate", job, "--cluster", "allreduce").stdout


# -- paths -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["~/test.arrow", "$RECORDS/test.arrow", "${RECORDS}/test.arrow"])
def test_paths_of_a_job_are_expanded(call: Call, job: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    for name in ("HOME", "RECORDS"):
        monkeypatch.setenv(name, f"{ROOT}/data/digits")
    job.write_text(job.read_text().replace(f"{ROOT}/data/digits/test.arrow", f"'{path}'"))
    assert call("validate", job).exit_code == 0
    assert call("validate", job, "--set", f"neuralnet.layer[data].store_conf.path={path}").exit_code == 0


def test_a_variable_that_is_not_set(call: Call, job: Path) -> None:
    job.write_text(job.read_text().replace(f"{ROOT}/data/digits/test.arrow", "$NO_SUCH_THING/x.arrow"))
    job.write_text(job.read_text() + "checkpoint_path: [a, '${NO_SUCH_THING}/b']\n")
    result = call("validate", job)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"{job}:16:26: neuralnet.layer[data].store_conf.path: $NO_SUCH_THING/x.arrow: the environment variable "
        "'NO_SUCH_THING' is not set.",
        f"{job}:27:22: checkpoint_path[1]: ${{NO_SUCH_THING}}/b: the environment variable 'NO_SUCH_THING' is not set.",
    ]


def test_what_only_looks_like_a_variable_stays(call: Call, job: Path) -> None:
    job.write_text(job.read_text() + "name: $NO_SUCH_THING\n")
    job.write_text(job.read_text().replace("name: tiny\n", "user_conf: {path: $NO_SUCH_THING}\n"))
    assert call("validate", job).exit_code == 0


@pytest.mark.parametrize("name", ["price$USD.csv", "$HOME.csv", "a${b}.csv"])
def test_a_file_with_the_name_of_a_variable_is_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/elsewhere")
    assert expand("$HOME/x.csv") == "/elsewhere/x.csv"
    (tmp_path / name).touch()
    assert (expand(name), expand(f"{tmp_path}/{name}")) == (name, f"{tmp_path}/{name}")


def test_paths_of_the_command_line_are_expanded(
    call: Call, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert call("run", f"~/{job.name}", "--quiet", "--run-dir", "$RUNS/one").exit_code == 0
    assert (tmp_path / "runs" / "one" / "summary.json").exists()
    result = call("test", job, "--init-from=~/runs/one", "--json", "--quiet")
    assert result.exit_code == 0, result.output
    result = call("data", "head", "$NO_SUCH_THING/x")
    assert result.exit_code == 2
    assert "$NO_SUCH_THING/x: the environment variable 'NO_SUCH_THING' is not set." in result.stderr


def test_every_text_of_the_command_line_is_a_path_or_known_to_be_none(call: Call) -> None:
    known = """4x6 ADDRESS BACKEND CHAR FORMAT HOST HxW INTERFACE[:PORTS] JOB JSON KEY=VALUE KEY=VALUE,... KIND
        METRIC=VALUE MODULE.CLASS N,N,... NAME NAMES NAME=SHARE,... TEXT UNIT URI WHAT WORDS [NAME]"""
    texts, context = set[str](), click.Context(main)
    commands = [main.get_command(context, name) for name in main.list_commands(context)]
    for command in filter(None, commands):
        for each in (command, *getattr(command, "commands", {}).values()):
            texts |= {p.make_metavar(context) for p in each.params if p.type is click.STRING}
    assert texts == set(known.split())
    for arguments in (("import", "$NOT/w.npz", "--job=$NOT", "-o=x"), ("init", "$NOT"), ("plan", "x", "--beside=$NOT")):
        assert "the environment variable 'NOT' is not set" in call(*arguments).stderr


# -- the program ------------------------------------------------------------------------------------------------


def test_a_job_from_standard_input(job: Path, tmp_path: Path) -> None:
    def call(text: str, *words: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, [*words], input=text, prog_name="singa-dask")
        return result.exit_code, result.stderr

    assert call(job.read_text(), "validate", "-") == (0, "")
    code, said = call(job.read_text().replace("momentum", "momentun"), "validate", "-")
    assert code == 2
    assert said.startswith("<stdin>:10:3: updater.momentun: unknown key. Did you mean 'momentum'?")
    assert call(job.read_text(), "run", "-", "--quiet", "--run-dir", str(tmp_path / "run")) == (0, "")
    assert (tmp_path / "run" / "job.yaml").read_text() == job.read_text()


def test_the_package_is_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "singa_dask", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("singa-dask")


def test_completion_of_a_shell_is_said_and_works() -> None:
    program = Path(sys.executable).with_name("singa-dask")
    shown = subprocess.run([program, "--help"], capture_output=True, text=True)
    line = 'eval "$(_SINGA_DASK_COMPLETE=bash_source singa-dask)"'
    assert line in shown.stdout
    script = f"PATH={program.parent}:$PATH; {line}; complete -p singa-dask"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert "_singa_dask_completion singa-dask" in done.stdout
    asked = {"_SINGA_DASK_COMPLETE": "bash_complete", "COMP_WORDS": "singa-dask va", "COMP_CWORD": "1"}
    done = subprocess.run([program], capture_output=True, text=True, env={**os.environ, **asked})
    assert done.stdout == "plain,validate\n"
