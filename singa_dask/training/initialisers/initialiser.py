"""The base of initialisers, and their registry."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import Conf, InitConf
from singa_dask.registry import Registry

__all__ = ["INITIALISERS", "Array", "Initialiser"]

INITIALISERS: Registry[Initialiser] = Registry("initialiser")

Array = np.ndarray[Any, Any]


class Initialiser:
    """Draws the initial values of one param.

    Parameters
    ----------
    conf : InitConf
        Its ``user_conf`` is for initialisers of the user's own.

    Attributes
    ----------
    block : type of Conf or None
        The block of ``init`` that it reads, ``conf.block(XConf)``.
    needs_matrix : bool
        Whether it is for params with rows and columns only.
    """

    block: ClassVar[type[Conf] | None] = None
    needs_matrix = False

    def __init__(self, conf: InitConf) -> None:
        self.conf = conf

    def fill(self, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Return values of ``shape``, floats; draw from ``random`` alone."""
        raise TypeError(f"{type(self).__name__} draws nothing: it has no fill()")


INITIALISERS.base = Initialiser
