"""Jobs started from Python: the same runs as those of the command line, and handles on them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from distributed import Client, get_client

import singa_dask as sd
from singa_dask.cli import main
from singa_dask.errors import ClusterError, NumericError
from singa_dask.jobs.train import RunOptions, start
from singa_dask.observe.files.run_directory import RunDirectory
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.jobs.conftest import KEYS, digits_net
from tests.runtime.processes import small_cluster

QUIET: RunOptions = {"progress": False}


def values_of(url: Path) -> dict[str, bytes]:
    """Return the params of the newest checkpoint of a run."""
    return {name: stored.values.tobytes() for name, stored in load_values(str(url)).items()}


def test_a_job_trains_to_the_same_bits_as_by_the_command(job: sd.Job, tmp_path: Path) -> None:
    job.save(tmp_path / "job.yaml")
    run = sd.train(tmp_path / "job.yaml", run_dir=str(tmp_path / "python"), **QUIET)
    arguments = ["run", str(tmp_path / "job.yaml"), "--run-dir", str(tmp_path / "command"), "--quiet"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    found = values_of(tmp_path / "python")
    assert found == values_of(tmp_path / "command")
    assert found
    assert (run.state, run.summary["steps"]) == ("done", 6)


def test_what_a_run_tells(job: sd.Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    given = job.replace({"test_freq": 3, "test_steps": 2})
    run = sd.train(given, run_dir=str(tmp_path / "run"), on_event=lambda event: told.append(event["event"]))
    assert "Train @ step 2" in capsys.readouterr().err
    assert {"started", "metrics", "checkpoint"} <= set(told)
    assert run.metrics.keys() == {"train", "test"}
    assert run.metrics["train"]["step"] == 5
    history = run.history
    assert list(history[history.phase == "train"].step) == [0, 2, 4, 5]
    assert history.loss.notna().all()
    assert "starts at step 0" in run.logs("worker-0-0")
    assert "worker-0-0: " not in run.logs("worker-0-0")
    assert run.logs().startswith("server-0-0: ")
    with (tmp_path / "run/log/worker-0-0.log").open("ab") as log:
        log.write(b"caf\xe9")  # of a file name, or cut by a kill
    assert run.logs("worker-0-0").endswith("caf\ufffd")
    with pytest.raises(sd.ConfigError, match="no log of 'worker-9'"):
        run.logs("worker-9")
    assert "<b>tiny</b>: done, step 6 of 6" in run._repr_html_()
    assert repr(run) == f"<Run {tmp_path}/run: done>"


@pytest.mark.long
def test_a_run_is_drawn(job: sd.Job, tmp_path: Path) -> None:
    run = sd.train(job, run_dir=str(tmp_path / "run"), **QUIET)
    assert run.plot()._repr_png_().startswith(b"\x89PNG")
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    with pytest.raises(sd.ConfigError, match="no metrics yet"):
        run.plot()


def test_a_run_elsewhere_that_may_go_on_is_not_replaced(job: sd.Job) -> None:
    url = "memory://a-run-that-may-go-on"
    with RunDirectory(url, "", "") as directory:
        directory.on_event({"event": "started", "time": 0.0})
    with pytest.raises(sd.ConfigError, match=r"a run is already there.*overwrite=True"):
        sd.train(job, run_dir=url, **QUIET)
    assert sd.train(job, run_dir=url, overwrite=True, **QUIET).state == "done"


@pytest.mark.long
def test_what_has_changed_is_told_when_a_run_goes_on(
    job: sd.Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, long = str(tmp_path / "run"), "a" * 90
    sd.train(job.replace({"user_conf.note": f"{long}b"}), run_dir=url, **QUIET)
    adam = {"updater.type": "Adam", "updater.momentum": 0, "updater.learning_rate.base_lr": 0.01}
    other = job.replace({**adam, "train_steps": 4, "user_conf.note": f"{long}c"})
    sd.train(other, run_dir=url, resume=True)
    none_left = "train_steps is 4, and the checkpoint has step 6: no step is left. Set train_steps, or epochs, "
    assert capsys.readouterr().err.splitlines()[:6] == [
        "changed: updater.type: SGD -> Adam",
        "changed: updater.learning_rate.base_lr: 0.05 -> 0.01",
        "changed: updater.momentum: 0.9 -> 0",
        "changed: train_steps: 6 -> 4",
        "changed: user_conf.note: …aaaaaaaaaab -> …aaaaaaaaaac",
        f"{none_left}higher to continue training.",
    ]
    other.save(tmp_path / "job.yaml")
    result = CliRunner().invoke(main, ["run", str(tmp_path / "job.yaml"), "--run-dir", url, "--resume"])
    assert result.exit_code == 0
    assert not [line for line in result.output.splitlines() if line.startswith("changed")]
    assert "has step 6: no step is left" in result.output


def test_a_run_of_another_process(job: sd.Job, tmp_path: Path) -> None:
    sd.train(job, run_dir=str(tmp_path / "run"), **QUIET)
    run = sd.open_run(str(tmp_path / "run"))
    assert run.state == "done"
    assert list(run.history.step) == [0, 2, 4, 5]
    for ask, advice in ((run.wait, "and is done. Its result is in run.summary"), (run.stop, "Use singa-dask stop")):
        with pytest.raises(sd.ConfigError, match=f"was not started here.*{advice}"):
            ask()
    with pytest.raises(sd.ConfigError, match="no run is here"):
        sd.open_run(str(tmp_path))


def test_a_run_is_stopped_and_goes_on(job: sd.Job, tmp_path: Path) -> None:
    shown = threading.Event()
    endless = job.replace({"train_steps": 1_000_000, "disp_freq": 1})
    run = sd.start(
        endless,
        run_dir=str(tmp_path / "run"),
        on_event=lambda event: shown.set() if event["event"] == "metrics" else None,
        **QUIET,
    )
    assert shown.wait(60)
    assert run.state == "running"
    assert run.wait(0) is None
    run.stop()
    result = run.wait()
    assert result is not None
    assert result.state == run.state == "stopped"
    assert (result.reason, result.exit_code) == ("stopped by run.stop()", 130)
    reached = result.steps
    more = job.replace({"train_steps": reached + 3})
    # each place that takes the URL of a run takes the run
    again = sd.train(more, run_dir=run, resume=run, **QUIET)
    assert (again.url, again.summary["steps"]) == (run.url, reached + 3)
    other = sd.train(job.replace({"train_steps": 1}), init_from=sd.open_run(again), run_dir=tmp_path / "b", **QUIET)
    assert sd.export(other, tmp_path / "net.npz").urls == (str(tmp_path / "net.npz"),)


def test_an_error_of_a_callback_stops_a_job_with_a_checkpoint(job: sd.Job, tmp_path: Path) -> None:
    def fail(event: Any) -> None:
        if event["event"] == "metrics" and event["step"] >= 2:
            raise KeyError("mine")

    url, endless = str(tmp_path / "run"), job.replace({"train_steps": 1_000_000, "disp_freq": 1})
    with pytest.raises(KeyError, match="mine"):
        sd.train(endless, run_dir=url, on_event=fail, **QUIET)
    summary, run = sd.open_run(url).summary, Path(url)
    assert (summary["state"], summary["exit_code"]) == ("failed", 1)
    assert summary["reason"] == "stopped by KeyError('mine') in on_event"
    reached = summary["steps"]
    assert (run / "checkpoint" / f"step-{reached}" / "manifest.json").exists()
    # what came after the error is recorded
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"] in (reached, reached - 1)
    again = sd.train(job.replace({"train_steps": reached + 3}), run_dir=url, resume=True, **QUIET)
    assert (again.summary["steps"], again.summary["resumes"], again.state) == (reached + 3, 1, "done")


def test_a_run_leaves_no_thread_and_no_descriptor(job: sd.Job, tmp_path: Path) -> None:
    left = []
    for name in "abc":
        sd.train(job, run_dir=str(tmp_path / name), **QUIET)
        left.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
    # those of other tests end when they have been idle for some seconds
    (threads, files), (threads_after, files_after) = left[1:]
    assert threads_after <= threads, [thread.name for thread in threading.enumerate()]
    assert files_after <= files


def test_ctrl_c_stops_a_job_with_a_checkpoint(job: sd.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait, interrupts = sd.Run.wait, iter([True])

    def interrupted(self: sd.Run, timeout: float | None = None) -> Any:
        if next(interrupts, False):
            raise KeyboardInterrupt
        return wait(self, timeout)

    monkeypatch.setattr(sd.Run, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sd.train(job.replace({"train_steps": 1_000_000}), run_dir=str(tmp_path / "run"), **QUIET)
    assert sd.open_run(str(tmp_path / "run")).state == "stopped"


def test_a_job_that_fails_raises(job: sd.Job, tmp_path: Path) -> None:
    wild = job.replace({"updater.learning_rate.base_lr": 1e30, "train_steps": 100})
    with pytest.raises(NumericError, match="softmaxloss"):
        sd.train(wild, run_dir=str(tmp_path / "run"), **QUIET)
    assert sd.open_run(str(tmp_path / "run")).state == "failed"


def test_options_that_exclude_each_other(job: sd.Job, tmp_path: Path) -> None:
    cases: list[tuple[RunOptions, str]] = [
        ({"resume": True, "init_from": "a"}, "init_from only values"),
        ({"overwrite": True}, "Pass run_dir without resume"),
        ({"queue": True}, "Pass its client"),
        ({"queue": True, "overwrite": True, "run_dir": str(tmp_path)}, "Pass its client"),
    ]
    for given, message in cases:
        with pytest.raises(sd.ConfigError, match=message):
            sd.start(job, **given)


def test_options_of_train_are_those_of_start() -> None:
    assert RunOptions.__annotations__.keys() == start.__annotations__.keys() - {"job", "keys", "return"}


def test_warnings_on_a_job_are_warnings(job: sd.Job, tmp_path: Path) -> None:
    net = sd.Net([*digits_net()["layer"], sd.layer("Tanh", name="unread", srclayers="relu")])
    given = sd.Job(net, train_steps=2, **KEYS)
    with pytest.warns(UserWarning, match="no layer of the train net reads this layer"):
        sd.train(given, run_dir=str(tmp_path / "run"), **QUIET)


@pytest.mark.long
@pytest.mark.cluster
def test_clients(job: sd.Job, tmp_path: Path) -> None:
    """A client, an address, one inside of a Dask task, and an asynchronous one in another thread."""
    with small_cluster(1, 4) as cluster, Client(cluster) as client:
        text = job.to_yaml()

        def in_task(url: str) -> str:
            path = Path(url).with_suffix(".yaml")
            path.write_text(text)
            return sd.train(sd.load(path), client=get_client(), run_dir=url, **QUIET).state

        async def asynchronously(url: str) -> str:
            async with Client(cluster.scheduler_address, asynchronous=True) as other:
                with pytest.raises(sd.ConfigError, match=r"asyncio\.to_thread"):
                    sd.start(job, client=other)
                run = await asyncio.to_thread(sd.train, job, client=other, run_dir=url, **QUIET)
                return run.state

        assert sd.train(job, client=client, run_dir=str(tmp_path / "a"), **QUIET).state == "done"
        assert sd.train(job, client=cluster.scheduler_address, run_dir=str(tmp_path / "b"), **QUIET).state == "done"
        assert client.submit(in_task, str(tmp_path / "c"), pure=False).result() == "done"
        assert asyncio.run(asynchronously(str(tmp_path / "d"))) == "done"
        assert len({str(values_of(tmp_path / name)) for name in "abcd"}) == 1
        too_large = job.replace({"cluster.nworker_groups": 8})
        with pytest.raises(ClusterError):
            sd.train(too_large, client=client, run_dir=str(tmp_path / "e"), **QUIET)
    with pytest.raises(ClusterError, match="closed"):
        sd.train(job, client=client, run_dir=str(tmp_path / "f"), **QUIET)
