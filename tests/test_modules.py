"""The user's own modules: read, loaded from text, and what is said of mistakes in them."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import singa_dask
from singa_dask import modules
from singa_dask.api import REGISTRIES, register
from singa_dask.conf import JobConf, load
from singa_dask.errors import ConfigError, DataError
from singa_dask.layers import LAYERS, Layer
from singa_dask.registry import Registry
from singa_dask.training import UPDATERS
from tests.cli.conftest import TINY

LAYER = """\
from singa_dask import Layer

class Mine(Layer):
    def setup(self):
        self.add_output(self.sources[0].shape)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, text: str = "") -> str:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return name


def take(*paths: str) -> None:
    modules.load(modules.read(paths), REGISTRIES.values())


def refused(*paths: str) -> str:
    with pytest.raises(ConfigError) as caught:
        take(*paths)
    return str(caught.value)


# -- reading and loading ---------------------------------------------------------------------------------------------


def test_a_class_is_found_by_its_module() -> None:
    take(write("own.py", LAYER))
    assert LAYERS.find("own.Mine").__name__ == "Mine"
    assert "Mine" not in LAYERS


def test_the_same_text_is_not_loaded_twice_and_another_takes_its_place() -> None:
    take(write("own.py", LAYER))
    first = LAYERS.find("own.Mine")
    take("own.py")
    assert LAYERS.find("own.Mine") is first
    take(write("own.py", LAYER + "    version = 2\n"))
    assert LAYERS.find("own.Mine").version == 2  # type: ignore[attr-defined]


def test_no_other_version_takes_the_place_of_a_module_in_use() -> None:
    """Not even one that another thread loads meanwhile, or one that another module replaces by its class."""
    named = LAYER.replace("class", "@register\nclass").replace("import Layer", "import Layer, register")
    registries = REGISTRIES.values()
    (first,), (renamed,) = (modules.read([write(name, named)]) for name in ("own.py", "other.py"))
    said = "own.py: job a runs in this process with another version of it. Rename the file, or wait for the end"
    with ThreadPoolExecutor(1) as threads, modules.using([first], registries, "job a"):
        mine = LAYERS.find("own.Mine")
        edited = threads.submit(modules.load, [first._replace(text=f"# edited\n{named}")], registries)
        with pytest.raises(ConfigError, match=said):
            edited.result()
        with pytest.raises(ConfigError, match=r"registered twice: by Mine of own.py and by Mine of other.py"):
            modules.load([renamed], registries)
        both = [first._replace(file="more/own.py"), *modules.read([write("uses.py", "from own import Mine")])]
        with modules.using(both, registries, "job b"):
            assert modules.import_module("uses").Mine is mine
        assert LAYERS.find("Mine") is LAYERS.find("own.Mine") is mine
    modules.load([renamed], registries)
    assert LAYERS.find("Mine") is LAYERS.find("other.Mine")


def test_a_class_that_is_registered_while_others_are_forgotten_stays() -> None:
    class Registers(tuple[str, ...]):
        def __contains__(self, place: object) -> bool:
            if "Late" not in registry:
                registry.register("Late")(Layer)
            return False

    registry = Registry[Layer]("layer type")
    registry.register("Early")(Layer)
    registry.forget(Registers())
    assert registry.names() == ["Early", "Late"]


def test_modules_of_a_job_import_each_other_in_any_order_and_load_anew_together() -> None:
    write("top.py", "from below import N\nM = N")
    take("top.py", write("below.py", "N = 1"))
    take("top.py", write("below.py", "N = 2"))
    assert modules.import_module("top").M == 2


def test_a_package_is_loaded_with_what_is_in_it() -> None:
    write("pack/__init__.py", "from pack import inner\nfrom . import inner as same\nassert inner is same")
    write("pack/inner.py", LAYER)
    write("pack/deep/__init__.py")
    write("pack/deep/last.py", "from pack.inner import Mine")
    take("pack")
    assert LAYERS.find("pack.deep.last.Mine") is LAYERS.find("pack.inner.Mine")
    assert sorted(modules.loaded()) == ["pack", "pack.deep", "pack.deep.last", "pack.inner"]


def test_in_a_package_nothing_is_found_that_is_not_shipped() -> None:
    source = modules.Source("pack", str(Path("pack/__init__.py")), "from pack import inner", is_package=True)
    write("pack/inner.py")
    with pytest.raises(ConfigError, match="cannot import name 'inner'"):
        modules.load([source])


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("none.py", "no such file. Paths are relative to the directory in which the command is started."),
        ("text.txt", "not a Python file, name.py"),
        ("folder", "not a Python file, name.py"),
        ("two-words.py", "'two-words' is not a valid name for a module. Use"),
        ("json.py", "'json' is the name of another module, a module of Python itself. Rename the file."),
        ("numpy.py", "'numpy' is the name of another module, "),
        ("latin.py", "the file is not UTF-8 text"),
    ],
)
def test_what_cannot_be_read_is_told(path: str, told: str) -> None:
    for each in ("text.txt", "two-words.py", "json.py", "numpy.py", "folder/part.py"):
        write(each)
    Path("latin.py").write_bytes(b"a = '\xe9'\n")
    assert refused(path).startswith(f"modules[0]: {path}: ")
    assert told in refused(path)


def test_two_files_of_one_name_are_refused() -> None:
    assert "another module has the same name, 'own'" in refused(write("own.py"), write("more/own.py"))


def test_every_module_that_fails_is_told_once_with_its_line() -> None:
    write("zero.py", "\nx = 1 / 0\n")
    write("uses.py", "import zero\n")
    write("broken.py", "def f(:\n")
    write("lacks.py", "import no_such_package_of_ours\n")
    assert refused("zero.py", "uses.py", "broken.py", "lacks.py").splitlines() == [
        "modules[0]: zero.py:2: ZeroDivisionError: division by zero.",
        "modules[2]: broken.py:1: SyntaxError: invalid syntax.",
        "modules[3]: lacks.py:1: ModuleNotFoundError: No module named 'no_such_package_of_ours'. A module that yours "
        "imports must be installed on all machines of the job, or be listed in modules too.",
    ]
    assert modules.loaded() == {}
    take(write("zero.py", "x = 1"), "uses.py")


# -- register --------------------------------------------------------------------------------------------------------

REGISTERED = """\
from singa_dask import Layer, Updater, register

@register
class Mine(Layer):
    pass

@register("Yours", "Theirs")
class Other(Updater):
    pass
"""


def test_register_finds_out_what_a_class_is() -> None:
    take(write("own.py", REGISTERED))
    assert LAYERS.find("Mine").__name__ == "Mine"
    assert UPDATERS.find("Yours") is UPDATERS.find("Theirs")
    take(write("own.py", LAYER))
    assert "Mine" not in LAYERS
    assert "Yours" not in UPDATERS


def test_a_name_of_two_modules_is_refused() -> None:
    told = refused(write("own.py", REGISTERED), write("again.py", REGISTERED))
    # Python 3.10 calls a decorator on the line of the class
    assert re.sub(":[34]:", ":", told) == (
        "modules[1]: again.py: layer type 'Mine' is registered twice: by Mine of own.py and by Mine of again.py."
    )


def test_a_name_of_ours_is_refused() -> None:
    text = REGISTERED.replace("@register\n", "@register('ReLU')\n")
    assert "'ReLU' is registered twice: by singa_dask.layers.activation.ReLU and by Mine of own.py." in refused(
        write("own.py", text)
    )


def test_what_an_earlier_job_has_left_gives_way_and_comes_back() -> None:
    write("own.py", REGISTERED)
    write("again.py", REGISTERED)
    for name in ("own", "again", "own", "again"):
        take(f"{name}.py")
        assert LAYERS.find("Mine").__module__ == name


def test_what_is_no_part_cannot_be_registered() -> None:
    with pytest.raises(
        ConfigError, match=r"int is not a component of a job\. It must extend one of singa_dask\.Algorithm, "
    ):
        register(int)


def test_what_users_import_is_loaded_when_it_is_asked_for() -> None:
    assert singa_dask.Layer is Layer
    assert set(singa_dask.__all__) >= {"Algorithm", "Initialiser", "Schedule", "Store", "StoreInput", "Updater"}
    with pytest.raises(AttributeError, match="has no attribute 'Layr'"):
        _ = singa_dask.Layr
    lazy = "import singa_dask, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", lazy]).returncode == 0


# -- in a job file ---------------------------------------------------------------------------------------------------


def job(*lines: str, kind: str = "own.Mine") -> str:
    layer = f"    - {{name: own, type: {kind}, srclayers: fc}}\n"
    text = TINY.replace("    - name: loss\n", f"{layer}    - name: loss\n").replace("[fc, data]", "[own, data]")
    return write("job.yaml", "".join(f"{line}\n" for line in lines) + text)


def told(path: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, registries=REGISTRIES)
    return str(caught.value)


def test_a_job_names_its_modules_and_their_classes() -> None:
    write("own.py", LAYER)
    assert load(job("modules: own.py"), registries=REGISTRIES).job.modules == ["own.py"]
    assert isinstance(JobConf.model_validate(load(job("modules: [own.py]")).job.model_dump()), JobConf)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("own.Mien", "no class 'Mien' in own. Did you mean 'Mine'? Known: Mine."),
        ("own.Layer", "own.Layer is not a layer: it must extend singa_dask.Layer."),
        ("own.Phase", "own.Phase is not a layer: it must extend singa_dask.Layer."),
        ("owm.Mine", "there is no module 'owm'. Install it, or list its file in the job, as modules: [owm.py]."),
        ("collections.OrderedDict", "collections.OrderedDict is not a layer: it must extend singa_dask.Layer."),
    ],
)
def test_a_wrong_type_is_told_at_its_place(kind: str, message: str) -> None:
    write("own.py", LAYER.replace("import Layer", "import Layer, Phase"))
    assert told(job("modules: [own.py]", kind=kind)) == f"job.yaml:25:25: neuralnet.layer[own].type: {message}"


@pytest.mark.parametrize(
    ("key", "base"),
    [
        ("updater.type", "Updater"),
        ("updater.learning_rate.type", "Schedule"),
        ("train_one_batch.alg", "Algorithm"),
        ("neuralnet.layer[fc].param[w].init.type", "Initialiser"),
        ("neuralnet.layer[data].store_conf.backend", "Store"),
    ],
)
def test_every_kind_is_checked(key: str, base: str) -> None:
    write("own.py", LAYER)
    with pytest.raises(ConfigError) as caught:
        load(job("modules: [own.py]"), sets=[f"{key}=own.Mine"], registries=REGISTRIES)
    article = "an" if base[0] in "AEIOU" else "a"
    assert str(caught.value).endswith(
        f"{key}: own.Mine is not {article} {base.lower()}: it must extend singa_dask.{base}."
    )


def test_a_module_that_fails_is_told_at_its_place_and_nothing_else_of_it() -> None:
    write("fine.py")
    write("own.py", f"{LAYER}\nx = 1 / 0\n")
    assert told(job("modules: [fine.py, own.py]")) == (
        "job.yaml:1:20: modules[1]: own.py:7: ZeroDivisionError: division by zero."
    )


def test_a_registered_name_is_known_and_suggested() -> None:
    write("own.py", REGISTERED)
    load(job("modules: [own.py]", kind="Mine"), registries=REGISTRIES)
    assert "unknown layer type 'Mien'. Did you mean 'Mine'?" in told(job("modules: [own.py]", kind="Mien"))


# -- mistakes --------------------------------------------------------------------------------------------------------

FAILS = """\
from singa_dask import DataError

def fail(how):
    if how == "data":
        raise DataError("no records today.")
    return 1 / 0
"""


def caught(action: Any, *arguments: Any) -> BaseException:
    try:
        action(*arguments)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_a_mistake_is_found_by_its_line_and_shown_without_a_file() -> None:
    modules.load([modules.Source("own", "gone/own.py", FAILS)])
    found = modules.blame(caught(modules.import_module("own").fail, "zero"))
    assert found is not None
    assert (found.place, found.text) == ("gone/own.py:6", "ZeroDivisionError: division by zero")
    assert "    return 1 / 0" in found.traceback
    assert "test_modules" not in found.traceback


def test_a_mistake_is_found_behind_an_error_of_ours() -> None:
    modules.load([modules.Source("own", "own.py", FAILS)])

    def wrapped() -> None:
        try:
            modules.import_module("own").fail("zero")
        except ZeroDivisionError as error:
            raise DataError("a.bin, block 3: ZeroDivisionError") from error

    found = modules.blame(caught(wrapped))
    assert found is not None
    assert (found.place, found.text) == ("own.py:6", "a.bin, block 3: ZeroDivisionError")


def test_what_is_no_mistake_of_users_is_not_blamed_on_them() -> None:
    modules.load([modules.Source("own", "own.py", FAILS)])
    meant = caught(modules.import_module("own").fail, "data")
    assert modules.blame(meant) is None
    meant.__cause__ = meant
    assert modules.blame(meant) is None
    assert modules.blame(caught(lambda: 1 / 0)) is None


def test_a_mistake_in_an_installed_module_that_a_job_names(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.syspath_prepend(str(here))
    write("installed_part.py", LAYER)
    kind = LAYERS.find("installed_part.Mine")
    found = modules.blame(caught(kind.setup, None))
    assert found is not None
    assert found.place.endswith("installed_part.py:5")
    assert found.text == "AttributeError: 'NoneType' object has no attribute 'add_output'"
