"""Names to classes."""

from __future__ import annotations

import collections
import importlib
import pkgutil
from typing import Any

import pytest

from singa_dask import inputs, layers
from singa_dask.data import stores
from singa_dask.data.stores import STORES
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS
from singa_dask.registry import Registry


@pytest.fixture
def parts() -> Registry[Any]:
    made = Registry[Any]("part")

    @made.register()
    class Own:
        pass

    @made.register("SGD", "Plain")
    class Two:
        pass

    made.add_modules("no_such_package_of_ours", {"module": "Missing"})
    return made


def test_find(parts: Registry[Any]) -> None:
    assert parts.find("Own").__name__ == "Own"
    assert parts.find("SGD") is parts.find("Plain") is parts.find("kSGD")


def test_a_module_is_imported_when_one_of_its_parts_is_asked_for() -> None:
    orders = Registry[Any]("order")
    orders.add_modules("tests", {"late_parts": "Late Later"})
    assert "Late" in orders and orders.names() == ["Late", "Later"]
    with pytest.raises(ValueError, match="'Later' is registered twice"):
        orders.register("Later")(object)
    with pytest.raises(ModuleNotFoundError, match=r"tests\.late_parts"):
        orders.get("Late")


@pytest.mark.parametrize(("registry", "packages"), [(LAYERS, (inputs, layers)), (STORES, (stores,))])
def test_names_that_are_listed_by_module_are_those_that_are_registered(registry: Registry[Any], packages: Any) -> None:
    """A class that is not listed would be known or not by what else has been imported."""
    registered: dict[str, str] = {}
    for package in packages:
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    ours = tuple(package.__name__ for package in packages)
    for cls in (cls for cls in registry.classes() if cls.__module__.startswith(ours)):
        registered |= dict.fromkeys(registry.names_of(cls), cls.__module__)
    assert registry._homes == registered


def test_names_are_sorted(parts: Registry[Any]) -> None:
    assert parts.names() == ["Missing", "Own", "Plain", "SGD"]
    assert "Missing" in parts and "Own" in parts and "kOwn" not in parts


def test_unknown_name(parts: Registry[Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        parts.find("plai")
    assert str(caught.value) == "unknown part 'plai'. Did you mean 'Plain'? Known: Missing, Own, Plain, SGD."


@pytest.mark.parametrize("name", ["Own", "Missing"])
def test_a_name_is_taken_once(parts: Registry[Any], name: str) -> None:
    with pytest.raises(ValueError, match="registered twice"):
        parts.register(name)(object)


def test_a_name_with_a_dot_is_that_of_a_class_in_a_module() -> None:
    orders = Registry[Any]("order")
    orders.base = dict
    assert orders.find("collections.OrderedDict") is collections.OrderedDict
    with pytest.raises(ConfigError, match=r"^collections\.UserList is not a dict: it must extend singa_dask\.dict\.$"):
        orders.find("collections.UserList")
    with pytest.raises(
        ConfigError, match=r"^no class 'OrderdDict' in collections\. Did you mean 'OrderedDict'\? Known: "
    ):
        orders.find("collections.OrderdDict")
    with pytest.raises(ConfigError, match=r"^no class 'Any' in colorsys\.$"):
        orders.find("colorsys.Any")
    with pytest.raises(ConfigError, match=r"^there is no module 'collectoins'"):
        orders.find("collectoins.OrderedDict")


def test_classes_of_a_module_are_forgotten(parts: Registry[Any]) -> None:
    assert parts.get("Own") is parts.find("Own")
    assert parts.get("None") is None
    parts.forget([__name__])
    assert parts.names() == ["Missing"]
