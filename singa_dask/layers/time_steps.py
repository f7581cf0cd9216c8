"""Time steps of a layer: checks of their number, and the padding mask of sequences."""

from __future__ import annotations

from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import Layer, check_axes
from singa_dask.layers.feature import Feature

# Added to the scores of padding, so that the exponentials of these scores are 0.
HIDDEN = -1e30


def check_all_steps(layer: Layer) -> None:
    """Check that one instance of a layer computes all time steps.

    Raises
    ------
    ConfigError
        The net has a separate instance for each time step.
    """
    if layer.name.startswith(f"{layer.site.first_step}#"):
        message = (
            "the layer needs all time steps at once, but here they are computed one by one. It must not be in a cycle "
            "or partitioned by features, and its sources need as many time steps, connected by unroll_conn_type "
            "OneToOne without shift."
        )
        raise ConfigError(Problem(("srclayers",), message))


def time_steps(layer: Layer) -> int:
    """Return the number of time steps of the source, for a layer that turns a sequence into one record.

    Raises
    ------
    ConfigError
        The layer itself has several time steps, or its source has only one.
    """
    check_axes(layer, "rows", 2)
    if layer.site.n_steps > 1:
        message = f"{layer.conf.type} makes one record of all time steps. Set 1, here and in the layers that read it."
        raise ConfigError(Problem(("unroll_len",), message))
    n_steps = layer.sources[0].n_steps
    if n_steps == 1:
        message = f"{layer.conf.srclayers[0]!r} has one time step. Expected several, which are read at once."
        raise ConfigError(Problem(("srclayers", 0), message))
    return n_steps


def split_mask(layer: Layer, most: int, masked: int = 0) -> tuple[list[Feature], Feature | None]:
    """Separate the sources of a layer from its padding mask.

    Parameters
    ----------
    layer : Layer
    most : int
        Maximum number of sources besides the mask.
    masked : int
        Index of the source whose rows the mask describes.

    Returns
    -------
    sources : list of Feature
        The sources without the mask.
    mask : Feature or None
        The mask, bool (T N, 1), or None if the layer has none.

    Raises
    ------
    ConfigError
        There are too many sources, or the mask and the source that it describes have different numbers of rows.
    """
    sources = [source for source in layer.sources if source.dtype != bool]
    masks = [k for k, source in enumerate(layer.sources) if source.dtype == bool]
    if not 1 <= len(sources) <= most or len(masks) > 1:
        bound = "one source" if most == 1 else f"1 to {most} sources"
        message = f"{layer.conf.type} takes {bound}, and optionally one PaddingMask."
        raise ConfigError(Problem(("srclayers",), message))
    for k in masks:
        n_rows, of_mask = sources[masked].shape[0], layer.sources[k].shape
        if of_mask != (n_rows, 1):
            message = f"the mask has shape {of_mask}, expected {(n_rows, 1)}: a value for each row of the source."
            raise ConfigError(Problem(("srclayers", k), message))
    return sources, layer.sources[masks[0]] if masks else None
