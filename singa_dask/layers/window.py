"""Windows that move over images: keys and checks that convolution and pooling share.

Images are (N, C, H, W), or (N, H, W) with one channel. A window has ``kernel``, ``stride`` and ``pad``. Each is one
number for both axes, or one number for each axis: ``kernel_x`` for the width, ``kernel_y`` for the height. A window has
floor((H + 2 pad - kernel) / stride) + 1 vertical positions, and likewise horizontal ones. With ``dilation`` d,
neighbouring pixels of a window are d apart, and the window spans d (kernel - 1) + 1 pixels.
"""

from __future__ import annotations

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import Layer, check_axes
from singa_dask.layers.traits import Connection, Speed
from singa_dask.ops.contract import UNDILATED, Array

STRIDE, PAD = (1, 1), (0, 0)


class WindowConf(Conf):
    """A window that moves over images.

    ``kernel``, ``pad`` and ``stride`` override the keys of each axis, which end in ``_x`` and ``_y``.
    """

    kernel: Size | None = None
    """Height and width of the window."""
    pad: Count | None = None
    """Rows and columns of padding on each side."""
    stride: Size | None = None
    """Step of the window on both axes."""
    kernel_x: Size = 3
    """Width of the window."""
    kernel_y: Size = 3
    """Height of the window."""
    pad_x: Count = 0
    """Columns of padding on the left and on the right."""
    pad_y: Count = 0
    """Rows of padding above and below."""
    stride_x: Size = 1
    """Step of the window to the right."""
    stride_y: Size = 1
    """Step of the window down."""

    def sizes(self, of: str) -> tuple[int, int]:
        """Return the vertical and the horizontal value of a key: "kernel", "stride", "pad" or "dilation"."""
        return getattr(self, self.key(of, 0)), getattr(self, self.key(of, 1))

    def key(self, of: str, axis: int) -> str:
        """Return the key that sets the value of an axis; axis 0 is vertical, axis 1 horizontal."""
        return of if getattr(self, of) is not None else f"{of}_{'yx'[axis]}"


class FilterConf(WindowConf):
    """A window with weights, as in convolutions."""

    num_filters: Size
    """Number of filters, which is the number of channels of the output."""
    dilation: Size | None = None
    """Distance between neighbouring pixels of the window, on both axes."""
    dilation_x: Size = 1
    """Horizontal distance between neighbouring pixels of the window."""
    dilation_y: Size = 1
    """Vertical distance between neighbouring pixels of the window."""
    groups: Size = 1
    """Number of groups into which channels and filters are divided. A filter reads only the channels of its group. With
    one group for each channel, the convolution is depthwise."""
    bias_term: bool = True
    """Whether each filter has a bias."""


def image_shape(layer: Layer) -> tuple[int, int, int, int]:
    """Return the shape (N, C, H, W) of the images that a layer reads; raises the errors of `check_axes`."""
    check_axes(layer, "images (channels, height, width)", 3, 4)
    n, *rest = layer.sources[0].shape
    return (n, *rest) if len(rest) == 3 else (n, 1, *rest)  # type: ignore[return-value]


def as_images(x: Array) -> Array:
    """Return images as (N, C, H, W). Images (N, H, W) get an axis for one channel."""
    return x if x.ndim == 4 else x[:, None]


class Windowed(Layer):
    """Base of layers with a window. It reads and checks the size of the window."""

    speed = Speed(time_foldable=True, feature_parallel=Connection.ONE_TO_ONE)

    def set_window(self, block: WindowConf, name: str, sizes: tuple[int, int]) -> tuple[int, int]:
        """Read the window of a block, and return the number of its (vertical, horizontal) positions.

        ``sizes`` is the (height, width) of the images.

        Raises
        ------
        ConfigError
            The window is larger than an image with its padding.
        """
        self.take_window(block)
        for axis, (size, what) in enumerate(zip(sizes, ("height", "width"), strict=True)):
            room = size + 2 * self.pad[axis]
            if self.reach[axis] > room:
                padded = " with its padding" if self.pad[axis] else ""
                wide = f"{self.reach[axis]} with its dilation" if self.dilation[axis] > 1 else f"{self.kernel[axis]}"
                message = f"expected at most {room}, the {what} of an image{padded}, got {wide}."
                raise ConfigError(Problem((name, block.key("kernel", axis)), message))
        down, right = (
            (size + 2 * pad - reach) // stride + 1
            for size, reach, stride, pad in zip(sizes, self.reach, self.stride, self.pad, strict=True)
        )
        return down, right

    def take_window(self, block: WindowConf) -> None:
        """Read the sizes of the window of a block.

        Sets ``reach``, the number of pixels that the window spans on each axis.
        """
        self.kernel, self.stride, self.pad = block.sizes("kernel"), block.sizes("stride"), block.sizes("pad")
        self.dilation = block.sizes("dilation") if isinstance(block, FilterConf) else UNDILATED
        down, right = ((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        self.reach = (down, right)
