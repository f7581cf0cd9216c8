"""What is checked of a class of layers: SINGA's names of its verbs, the traits that it inherits, what it sets up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.feature import Feature
from singa_dask.layers.param import Param
from singa_dask.layers.traits import Traits

# SINGA's names of the verbs, which a class may use instead.
VERBS = {"compute_feature": "forward", "compute_gradient": "backward"}


def define_verbs(cls: Any) -> None:
    """Let a verb of a class be called by both of its names.

    Raises
    ------
    TypeError
        The class defines both.
    """
    own = vars(cls)
    for singa, verb in VERBS.items():
        if singa in own and verb in own:
            raise TypeError(f"{cls.__name__} defines {verb}() and {singa}(), which mean the same. Define one.")
        if singa in own:
            setattr(cls, verb, own[singa])
        elif verb in own:
            setattr(cls, singa, own[verb])


def inherit_traits(cls: Any) -> None:
    """Take away inherited traits that the code of a class could make wrong, unless the class states its traits.

    Raises
    ------
    TypeError
        A trait stands beside ``traits``, where nothing reads it.
    """
    own = vars(cls)
    for name in (field.name for field in fields(Traits)):
        if name in own:
            raise TypeError(f"{cls.__name__}.{name} is a trait. Say traits = Traits({name}=...).")
    if "traits" in own:
        return
    cls.traits = cls.traits.replace(capturable=False)
    if not own.keys().isdisjoint(("setup", *VERBS.values())):
        cls.traits = cls.traits.replace(
            accumulates=False, time_foldable=False, feature_parallel=None, reads_gradients=False
        )


def check_setup(
    kind: str,
    traits: Traits,
    params: Sequence[Param],
    n_left_out: int,
    features: Sequence[Feature],
    attributes: Mapping[str, Any],
) -> None:
    """Check that `Layer.setup` has added the params that the traits name, but for biases that the job leaves out.

    Outputs with a gradient need a Split where several layers read them.

    Raises
    ------
    ConfigError
        With a path relative to the layer.
    """
    message = ""
    if missing := traits.params[len(params) : len(traits.params) - n_left_out]:
        message = f"its traits name the param {missing[0]!r}, which setup() does not add. Call add_param, or add_bias."
    for name, value in attributes.items():
        if isinstance(value, Param) and value not in params:
            message = f"self.{name} is a Param that nobody updates. Make it by add_param, and name it in the traits."
    one_gradient = not traits.needs_split and not (traits.outputs_key or traits.is_input or traits.learns_without_loss)
    if one_gradient and any(feature.requires_grad for feature in features):
        message = "several layers that read it would overwrite one gradient. Take needs_split=False out of its traits."
    if message:
        raise ConfigError(Problem(("type",), f"{kind}: {message}"))
