"""What happens when a class of layers is defined: SINGA's names of its verbs, and the traits that it inherits."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from singa_dask.layers.traits import Traits

__all__ = ["define_verbs", "inherit_traits"]

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
        cls.traits = cls.traits.replace(accumulates=False, time_foldable=False, feature_parallel=None)
