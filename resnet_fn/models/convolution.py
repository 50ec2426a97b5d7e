"""This module chooses how a convolution is computed: by MindSpore's operation or by products."""

import contextlib
from collections.abc import Iterator

import mindspore
from mindspore import Tensor, nn, ops

from resnet_fn.models.products import Columns, TimesFiltered, Winograd
from resnet_fn.models.winograd import convolve
from resnet_fn.runtime import instructions

LEAST_CHANNELS = 16  # fewest input channels for `convolve`; a stem with 1 to 3 is not faster
_CELLS = {"strided winograd": Winograd, "columns": Columns}


class Conv2d(nn.Conv2d):
    """Computes `nn.Conv2d` by MindSpore's operation, or by matrix products.

    `way` is "" for the operation, "winograd" for `convolve` at stride 1, "lean winograd" for the
    same with the cell `TimesFiltered`, "strided winograd" or "columns" for the cells `Winograd` and
    `Columns`, or "sampled" for a 1x1 convolution after taking every second row and column.
    """

    way = ""

    def construct(self, x: Tensor) -> Tensor:
        """Map [N, C, H, W] to [N, O, H', W']."""
        if self.way == "winograd":
            return convolve(x, self.weight)
        if self.way == "lean winograd":
            return convolve(x, self.weight, multiply=self.multiply)
        if self.way == "sampled":
            return self.pointwise(self.sample(x), self.weight)
        if self.way in ("strided winograd", "columns"):
            return self.products(x, self.weight)
        return super().construct(x)

    def fitting_way(self, all_products: bool = False) -> str:
        """Return the fastest way that fits on a CPU.

        With `all_products`, the way is "" only if MindSpore's operation is itself a product (1x1 of
        stride 1 in one group), or if no way fits.
        """
        if (self.dilation, self.group, self.has_bias) != ((1, 1), 1, False):
            return ""
        size, stride = self.kernel_size, self.stride
        deep = self.in_channels >= LEAST_CHANNELS
        is_usual = size in ((1, 1), (3, 3), (7, 7)) and self.padding == size[0] // 2
        if not is_usual or stride not in ((1, 1), (2, 2)):
            return ""
        if size == (3, 3) and deep and stride == (1, 1):
            return "lean winograd" if all_products else "winograd"
        if not all_products or (size, stride) == ((1, 1), (1, 1)):
            return ""
        if size == (1, 1):
            return "sampled"
        return "strided winograd" if size == (3, 3) and deep else "columns"

    def set_way(self, way: str) -> None:
        """Compute in this way from now on."""
        if way == "sampled":
            self.sample = ops.AvgPool(1, 2, "valid")  # the mean of one pixel is exact
            self.pointwise = ops.Conv2D(self.out_channels, 1)
        if way == "lean winograd":
            self.multiply = TimesFiltered()
        if way in _CELLS:
            self.products = _CELLS[way](self.kernel_size[0], self.stride[0], self.out_channels)
        self.way = way


def use_products(net: nn.Cell, wanted: bool = True) -> dict[Conv2d, str]:
    """Switch products on or off (on a card, always off) in the convolutions of a net.

    Return the convolutions that changed, each with its way before. If oneDNN may use all
    instructions (runtime/instructions.py), all convolutions that can be products become products.
    """
    wanted = wanted and mindspore.get_current_device().device_target == "CPU"
    all_products = instructions.choice().convolutions == instructions.PRODUCTS
    changed = {}
    for _, cell in net.cells_and_names():
        if isinstance(cell, Conv2d):
            way = cell.fitting_way(all_products) if wanted else ""
            if way != cell.way:
                changed[cell] = cell.way
                cell.set_way(way)
    return changed


@contextlib.contextmanager
def standard_operations(net: nn.Cell) -> Iterator[None]:
    """Use only MindSpore's own operations inside a `with` block, so that the net can be
    exported.
    """
    convolutions = use_products(net, False)
    others = [cell for _, cell in net.cells_and_names() if getattr(cell, "standard", None) is False]
    for cell in others:
        cell.standard = True
    try:
        yield
    finally:
        for cell, way in convolutions.items():
            cell.set_way(way)
        for cell in others:
            cell.standard = False
