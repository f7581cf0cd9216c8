"""Secrets in options of filesystems and in URLs are in nothing that is shown or stored, and runs work with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
import yaml
from fsspec.implementations.memory import MemoryFileSystem

import singa_dask as sd
from singa_dask import redaction
from singa_dask.errors import SingaError
from singa_dask.observe.programs import mlflow_run
from tests.cli.conftest import DIGITS, TINY, Call
from tests.runtime.processes import cluster

PASSWORD, SECRET, TOKEN = "pass-kg4711-word", "secret-kg4712-value", "token-kg4713-value"
MARKS = ("kg4711", "kg4712", "kg4713")
URL = f"vault://anna:{PASSWORD}@host"


class Vault(MemoryFileSystem):
    """Files in memory, for those who know its secrets; its errors tell everything."""

    protocol = "vault"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    cachable = False

    def __init__(self, secret: str = "", deep: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.given = (secret, (deep or {}).get("token", ""))

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(re.sub(r"^vault://([^/@]*@)?host", "", path))

    def _open(self, path: str, mode: str = "rb", **given: Any) -> Any:
        if path.endswith(".arrow") and mode == "rb" and self.given != (SECRET, TOKEN):
            raise PermissionError(f"{URL}/{path}?sig={TOKEN}: {self.given} is wrong")
        return super()._open(path, mode, **given)

    def cat_file(self, path: str, *given: Any, **more: Any) -> bytes:
        if path.endswith(".arrow") and self.given != (SECRET, TOKEN):
            raise PermissionError(f"{URL}/{path}?sig={TOKEN}: {self.given} is wrong")
        if path.endswith("broken.arrow"):
            raise OSError(f"{URL}{path}?sig={TOKEN}: {self.given} has read nonsense, {PASSWORD}")
        return super().cat_file(path, *given, **more)


@pytest.fixture(autouse=True)
def _vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fsspec.register_implementation("vault", Vault, clobber=True)
    Vault.store.clear()
    monkeypatch.setattr(redaction, "_known", set())
    with Vault(SECRET, {"token": TOKEN}).open("/digits.arrow", "wb") as file:
        file.write(DIGITS.read_bytes())
    yield
    Vault.store.clear()


def job(folder: Path, url: str = f"{URL}/digits.arrow", **options: Any) -> Path:
    """Write a job that reads from the vault."""
    whole = yaml.safe_load(TINY)
    given = {"path": url, "storage_options": {"secret": SECRET, "deep": {"token": TOKEN}, **options}}
    whole["neuralnet"]["layer"][0]["store_conf"] |= given
    path = folder / "job.yaml"
    path.write_text(f"# mine\n{yaml.safe_dump(whole)}")
    return path


def texts(folder: Path) -> dict[str, str]:
    """Return what is in all files of a folder, and in the vault."""
    found = {str(path): path.read_bytes().decode(errors="replace") for path in folder.rglob("*") if path.is_file()}
    names = [name for name in Vault.store if not name.endswith(".arrow")]
    return found | {name: Vault.store[name].getvalue().decode(errors="replace") for name in names}


def check_hidden(*shown: str, folder: Path | None = None) -> None:
    """Check that no secret is in what was shown, and in the files of a folder."""
    everything = {f"output {i}": text for i, text in enumerate(shown)} | (texts(folder) if folder else {})
    leaks = {name: line for name, text in everything.items() for line in text.splitlines() for m in MARKS if m in line}
    assert leaks == {}


@pytest.mark.parametrize("remote", [False, True])
def test_a_run_keeps_none(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr(mlflow_run, "CLOSE_S", 60.0)
    runs = tmp_path / "out"
    url = f"{URL}/runs/r" if remote else str(runs / "r")
    option = f"neuralnet.layer[data].store_conf.storage_options.secret={SECRET}"
    shown = call("run", job(tmp_path), "--run-dir", url, "--set", option, "--set", f"mlflow={runs / 'mlruns'}")
    assert shown.exit_code == 0, shown.output
    output = [shown.output]
    for verb in (["show", url], ["show", url, "--json"], ["diff", url, url], ["list", "--runs", url]):
        output.append(call(*verb).output)
    check_hidden(*output, folder=runs)
    kept = texts(runs)[f"{'/runs/r' if remote else url}/job.yaml"]
    assert kept.startswith("# mine\n")
    assert kept.count("***") >= 2


def test_what_is_hidden_is_asked_for(call: Call, tmp_path: Path) -> None:
    url = str(tmp_path / "out")
    assert call("run", job(tmp_path), "--run-dir", url).exit_code == 0
    with pytest.raises(SingaError, match=r"storage_options.deep.token: runs do not keep secrets. Write deep.token: "):
        sd.test(url)


def test_the_environment_has_them(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_SECRET", SECRET)
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    given = job(tmp_path, "vault://host/digits.arrow", secret="${VAULT_SECRET}", deep={"token": "${VAULT_TOKEN}"})
    url = str(tmp_path / "out")
    shown = call("run", given, "--run-dir", url)
    assert shown.exit_code == 0, shown.output
    check_hidden(shown.output, folder=tmp_path)
    assert sd.test(url)
    monkeypatch.delenv("VAULT_TOKEN")
    with pytest.raises(SingaError, match=r"storage_options.deep.token: the environment variable 'VAULT_TOKEN' is not"):
        sd.test(url)


@pytest.mark.parametrize("path", ["missing.arrow", "broken.arrow", "wrong"])
def test_errors_tell_none(call: Call, tmp_path: Path, path: str) -> None:
    folder = tmp_path / "out"
    more = {"secret": "wrong-kg4712-secret"} if path == "wrong" else {}
    if path == "broken.arrow":
        Vault.store["/broken.arrow"] = Vault.store["/digits.arrow"]
    given = job(tmp_path, f"{URL}/{'digits.arrow' if path == 'wrong' else path}", **more)
    output = [call("run", given, "--run-dir", folder), call("validate", given)]
    output += [call("inspect", f"{URL}/{path}", "--storage-option", f"secret={SECRET}")]
    assert output[0].exit_code in (1, 2)
    check_hidden(*[each.output for each in output], folder=folder)


@pytest.mark.long
@pytest.mark.cluster
def test_clusters_tell_none(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "out")
    given = str(job(tmp_path, str(DIGITS)))
    with cluster(tmp_path, "--no-nanny") as (made, _):
        where = ("--scheduler-file", str(made.file))
        option = f"neuralnet.layer[data].store_conf.storage_options.secret={SECRET}"

        def tell(*verb: str) -> str:
            # as another process, which does not know what to hide
            monkeypatch.setattr(redaction, "_known", set())
            asked = call(*verb, *where)
            assert asked.exit_code == 0, asked.output
            return asked.stdout + asked.stderr

        shown = [tell("run", given, "--run-dir", url, "--set", option, "--detach", "--cluster", "allreduce")]
        (name,) = {line for line in shown[0].splitlines() if line.startswith("tiny-")}
        verbs = (["attach", name], ["list", "--all"], ["view", name], ["view", name, "--json"], ["logs", name])
        shown += [tell(*verb) for verb in verbs]
    (tmp_path / "job.yaml").unlink()
    check_hidden(*shown, folder=tmp_path)
    assert "done" in shown[1]


@pytest.mark.parametrize("wrong", [SECRET, [{"secret": SECRET}]])
def test_wrong_options_are_not_shown(call: Call, tmp_path: Path, wrong: Any) -> None:
    given = job(tmp_path)
    whole = yaml.safe_load(given.read_text())
    whole["neuralnet"]["layer"][0]["store_conf"] = {"path": str(DIGITS), "storage_options": wrong}
    given.write_text(yaml.safe_dump(whole))
    result = call("validate", given)
    assert "storage_options: expected a mapping" in result.stderr
    check_hidden(result.output)
