"""These functions find layers of a net that a later MindSpore computes differently."""

import contextlib
import functools
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from mindspore import nn

from resnet_fn.config.wording import first_few
from resnet_fn.runtime.user_files import imports_beside, load_function

# New defaults by layer and argument, most of which MindSpore 2.10 announces in its docstrings.
CHANGES: dict[str, dict[str, str]] = {
    **{
        f"Conv{n}d{kind}": {"pad_mode": "0, without `same`", "has_bias": "True"}
        for n in (1, 2, 3)
        for kind in ("", "Transpose")
    },
    **{f"{kind}Pool{n}d": {"stride": "kernel_size"} for n in (1, 2, 3) for kind in ("Max", "Avg")},
    **{f"BatchNorm{n}d": {"momentum": "0.1"} for n in (1, 2, 3)},
    "SyncBatchNorm": {"momentum": "0.1"},
    **{f"InstanceNorm{n}d": {"affine": "False"} for n in (1, 2, 3)},
    "LayerNorm": {"epsilon": "1e-05"},
    "LeakyReLU": {"alpha": "0.01"},
    "SmoothL1Loss": {"reduction": "'mean'"},
    "Embedding": {"embedding_table": "N(0, 1)"},
    "Unfold": {"padding": "0"},
    "Dropout": {},  # see `resting_settings`
}
_OPPOSITE = {
    "momentum": "; with a later MindSpore write 0.1, because momentum becomes the weight of the "
    "new batch"
}


@contextlib.contextmanager
def _recorded(
    layers: Iterable[type[nn.Cell]],
) -> Iterator[list[tuple[nn.Cell, type[nn.Cell], set[str]]]]:
    """Record instances of `layers` made in the `with` block as (layer, class, names of the given
    arguments).
    """
    recorded: list[tuple[nn.Cell, type[nn.Cell], set[str]]] = []

    def recording(layer: type[nn.Cell], make: Any) -> Any:
        @functools.wraps(make)
        def init(self: nn.Cell, *positional: Any, **named: Any) -> None:
            with contextlib.suppress(TypeError):  # a wrong call gets its error from the layer
                arguments = inspect.signature(make).bind(self, *positional, **named).arguments
                recorded.append((self, layer, set(arguments)))
            make(self, *positional, **named)

        return init

    with contextlib.ExitStack() as restored:
        for layer, make in {layer: layer.__init__ for layer in layers}.items():
            restored.callback(setattr, layer, "__init__", make)
            layer.__init__ = recording(layer, make)
        yield recorded


def resting_settings(location: str) -> list[str]:
    """Build a net by calling `location` (FILE:NAME), a function or a class.

    Return a line for each default that layers use and a later MindSpore changes, and for each given
    Dropout keep_prob.
    """
    # a later MindSpore may lack a layer or an argument
    layers = {getattr(nn, name): new for name, new in CHANGES.items() if hasattr(nn, name)}
    build = load_function(location, "net")
    with _recorded(layers) as recorded, imports_beside(location):
        net = build()
    paths = {id(cell): path for path, cell in net.cells_and_names()}
    rows: dict[str, list[str]] = {}
    for cell, layer, arguments in recorded:
        defaults = inspect.signature(layer.__init__).parameters
        lines = []
        for argument, new in layers[layer].items():
            if argument not in defaults or argument in arguments:
                continue
            old = defaults[argument].default
            if repr(old) != new:  # this MindSpore may have the new default already
                lines.append(
                    f"{argument} uses the default {old!r}, which becomes {new}; "
                    f"write {argument}={old!r}{_OPPOSITE.get(argument, '')}"
                )
        if layer is nn.Dropout and "keep_prob" in arguments:
            lines.append(
                "keep_prob (first argument) becomes p, the dropped share; write "
                f"p={1 - cell.keep_prob:g}"
            )
        for line in lines:
            paths_of_line = rows.setdefault(f"{layer.__name__}: {line}", [])
            paths_of_line.append(paths.get(id(cell), type(cell).__name__))
    return [f"{text} ({first_few(names)})" for text, names in rows.items()]
