"""Blocks that registered classes declare: validated by the registry, or where they are asked for."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import pytest
from pydantic import Field, ValidationError

from singa_dask import conf
from singa_dask.conf.kinds import Many, Size
from singa_dask.conf.parts import Part
from singa_dask.conf.updater import LRGenConf
from singa_dask.errors import ConfigError
from singa_dask.registry import Registry


class BumpConf(conf.Conf):
    """``bump_conf``."""

    width: Size
    """Steps of the bump."""
    heights: Many[float] = Field(default=[])
    """Heights."""


class OddConf(conf.Conf):
    """Keys under an irregular name."""

    block_key = "very_odd_conf"

    n: int = 3
    """A number."""


class Schedule:
    """The base of all."""

    options_class: ClassVar[type[conf.Conf] | None] = None


@pytest.fixture
def registries() -> dict[str, Registry[Any]]:
    registry = Registry[Schedule]("schedule")
    registry.register("Fixed")(Schedule)
    registry.register("Bump", "Hump")(type("Bump", (Schedule,), {"options_class": BumpConf}))
    registry.register("Odd")(type("Odd", (Schedule,), {"options_class": OddConf}))
    return {"schedule": registry}


def rate(registries: Any = None, **values: Any) -> LRGenConf:
    return LRGenConf.model_validate(values, context={"registries": registries})


def mistakes(registries: Any, **values: Any) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as caught:
        rate(registries, **values)
    return [(found["loc"], found["msg"]) for found in caught.value.errors()]


def test_keys_of_blocks() -> None:
    assert (BumpConf.block_key, OddConf.block_key) == ("bump_conf", "very_odd_conf")
    assert type("Small", (OddConf,), {}).block_key == "small_conf"  # type: ignore[attr-defined]


def test_a_block_is_validated_by_the_class_that_is_declared_for_it(registries: Any) -> None:
    made = rate(registries, type="kBump", bump_conf={"width": 3, "heights": 2.0})
    assert made.given_block(BumpConf) == made.block(BumpConf) == BumpConf(width=3, heights=[2.0])
    assert made.given_block(OddConf) is None
    assert made.block(OddConf).n == 3
    assert mistakes(registries, type="Bump", bump_conf={"width": 0, "hight": 1}) == [
        (("bump_conf", "width"), "expected at least 1, got 0."),
        (("bump_conf", "hight"), "unknown key. Did you mean 'heights'? Known: heights, width."),
    ]
    [(path, message)] = mistakes(registries, type="Fixed", bump_conf=3)
    assert (path, message) == (("bump_conf",), "expected a mapping of keys to values, got 3.")


def test_a_block_that_the_type_needs(registries: Any) -> None:
    missing = (("bump_conf",), "Bump needs this block, with width, but the block is missing.")
    assert mistakes(registries, type="kBump") == [missing]
    assert mistakes(registries, type="Bump", bump_conf=None) == [missing]
    assert rate(registries, type="Odd", very_odd_conf=None).blocks == {"very_odd_conf": OddConf()}
    assert rate(registries, type="Fixed", very_odd_conf=None).blocks == {}


def test_a_block_that_must_be_given(registries: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OddConf, "must_be_given", True)
    assert mistakes(registries, type="Odd") == [(("very_odd_conf",), "Odd needs this block, but the block is missing.")]


def test_an_unknown_block(registries: Any) -> None:
    [(path, message)] = mistakes(registries, type="Fixed", bumb_conf={})
    assert path == ("bumb_conf",)
    assert message == (
        "unknown key. Did you mean 'bump_conf'? Known: base_lr, bump_conf, type, user_conf, very_odd_conf."
    )


def test_without_registries_a_block_is_validated_where_it_is_asked_for() -> None:
    made = rate(type="Bump", bump_conf={"width": 3, "heights": 2.0})
    assert made.block(BumpConf) == BumpConf(width=3, heights=[2.0])
    with pytest.raises(ConfigError, match=r"^bump_conf\.width: expected at least 1, got 0\.$"):
        rate(type="Bump", bump_conf={"width": 0}).block(BumpConf)
    with pytest.raises(ConfigError, match=r"^bump_conf: Bump needs this block, with width\.$"):
        rate(type="Bump").block(BumpConf)
    [(path, message)] = mistakes(None, type="Bump", bump_conf=[])
    assert (path, message) == (("bump_conf",), "expected a mapping of keys to values, got a list.")
    [(path, message)] = mistakes(None, type="Bump", bump={})
    assert (path, message) == (("bump",), "unknown key. Known: base_lr, type, user_conf.")


def test_options_by_their_old_name_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Old\.block has no effect\. Write options_class = "):
        type("Old", (Part,), {"block": BumpConf})


def test_blocks_travel(registries: Any) -> None:
    made = rate(registries, type="Bump", bump_conf={"width": 3})
    again = LRGenConf.model_validate_json(made.model_dump_json(), context={"registries": registries})
    assert again == made == pickle.loads(pickle.dumps(made))
    plain = LRGenConf.model_validate_json(made.model_dump_json())
    assert plain.block(BumpConf) == made.block(BumpConf)
    assert LRGenConf.model_validate(plain.model_dump(), context={"registries": registries}) == made
    assert made.model_copy(update={"bump_conf": None}).given_block(BumpConf) is None
    with pytest.raises(ValidationError):
        made.bump_conf = BumpConf(width=4)


def test_a_block_of_python(registries: Any) -> None:
    made = rate(registries, type="Bump", bump_conf=BumpConf(width=3))
    assert made.block(BumpConf).width == 3
    # as a user's own module leaves it behind when it is loaded again
    other = type("BumpConf", (BumpConf,), {"block_key": "bump_conf"})
    found = made.block(other)
    assert type(found) is other and found.width == 3  # type: ignore[attr-defined]


def test_the_block_of_the_type_goes_before_others_of_its_name(registries: Any) -> None:
    own = type("BumpConf", (conf.Conf,), {"__annotations__": {"depth": int}, "depth": 1})
    registries["schedule"].register("Dent")(type("Dent", (Schedule,), {"options_class": own}))
    assert rate(registries, type="Dent", bump_conf={"depth": 2}).blocks["bump_conf"].depth == 2
    assert rate(registries, type="Bump", bump_conf={"width": 2}).block(BumpConf).width == 2


def test_the_block_of_the_type_is_added_with_its_defaults(registries: Any) -> None:
    made = rate(registries, type="Odd")
    assert made.given_block(OddConf) == OddConf()
    assert made.model_dump()["very_odd_conf"] == {"n": 3}
    assert made.model_dump(exclude_unset=True) == {"type": "Odd"}
    assert rate(registries, **made.model_dump()) == made
    assert rate(None, type="Odd").given_block(OddConf) is None


def test_the_schema_knows_blocks(registries: Any) -> None:
    whole = conf.schema(registries)
    keys = whole["definitions"]["LRGenConf"]["properties"]
    assert keys["bump_conf"]["anyOf"] == [{"$ref": "#/definitions/BumpConf"}, {"type": "null"}]
    assert keys["bump_conf"]["description"] == "For Bump, Hump."
    assert whole["definitions"]["BumpConf"]["properties"]["width"]["description"] == "Steps of the bump."
    assert whole["definitions"]["LRGenConf"]["additionalProperties"] is False
    assert "_conf$" in conf.schema()["definitions"]["LRGenConf"]["patternProperties"]
