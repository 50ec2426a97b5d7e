"""These functions find layers of a net that a later MindSpore computes differently."""

import ast
import contextlib
import functools
import inspect
import re
from collections.abc import Iterator
from typing import Any

from mindspore import nn

from resnet_fn.config.wording import first_few
from resnet_fn.runtime.user_files import imports_beside, load_function

# New defaults by layer and argument, for changes that `changing_defaults` cannot read in
# MindSpore's docstrings.
_SILENT: dict[str, dict[str, str]] = {
    **{
        f"Conv{n}d{kind}": {"pad_mode": "0, without `same`"}
        for n in (1, 2, 3)
        for kind in ("", "Transpose")
    },
    **{f"{kind}Pool{n}d": {"stride": "kernel_size"} for n in (1, 2, 3) for kind in ("Max", "Avg")},
    "LeakyReLU": {"alpha": "0.01"},
    "SmoothL1Loss": {"reduction": "'mean'"},
    "Embedding": {"embedding_table": "N(0, 1)"},
}
_OPPOSITE = {
    "momentum": "; with a later MindSpore write 0.1, because momentum becomes the weight of the "
    "new batch"
}


def changing_defaults(layer: type[nn.Cell]) -> dict[str, str]:
    """Return {argument: new default} for the defaults of a layer that a later MindSpore changes."""
    # the docstring above the arguments, in one line
    text = " ".join((layer.__doc__ or "").partition("Args:")[0].split())
    changes = dict(_SILENT.get(layer.__name__, {}))
    now = inspect.signature(layer.__init__).parameters
    if signature := re.search(rf"``(?:[\w.]*\.)?{layer.__name__}\((.*?)\)``", text):
        with contextlib.suppress(SyntaxError):
            arguments = ast.parse(f"def new({signature[1]}): pass").body[0].args  # type: ignore[attr-defined]
            last = arguments.args[len(arguments.args) - len(arguments.defaults) :]
            for argument, new in zip(last, arguments.defaults, strict=True):
                old = now.get(argument.arg)
                is_known = isinstance(new, ast.Constant) and new.value is not None
                if old and is_known and new.value != old.default:
                    changes[argument.arg] = repr(new.value)
    pattern = r"`+(\w+)`+[^`]*(?:renamed to `\w+`)?[^`.]*chang\w+ from ``[^`]+`` to ``([^`]+)``"
    changes |= {name: value for name, value in re.findall(pattern, text) if value != "None"}
    changes |= dict(re.findall(r"`(\w+)` will default to ``([^`]+)``", text))
    return {name: value for name, value in changes.items() if name in now}


@contextlib.contextmanager
def _recorded(
    layers: dict[type[nn.Cell], dict[str, str]],
) -> Iterator[dict[int, tuple[nn.Cell, type, set[str]]]]:
    """Record instances of `layers` made in the `with` block as {id: (layer, class, names of the
    given arguments)}.
    """
    recorded: dict[int, tuple[nn.Cell, type, set[str]]] = {}

    def recording(layer: type[nn.Cell], make: Any) -> Any:
        @functools.wraps(make)
        def init(self: nn.Cell, *positional: Any, **named: Any) -> None:
            with contextlib.suppress(TypeError):  # a wrong call gets its error from the layer
                arguments = inspect.signature(make).bind(self, *positional, **named).arguments
                recorded.setdefault(id(self), (self, layer, set(arguments)))
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
    layers = {
        kind: rests
        for kind in vars(nn).values()
        if isinstance(kind, type) and issubclass(kind, nn.Cell)
        if (rests := changing_defaults(kind)) or kind is nn.Dropout
    }
    build = load_function(location, "net")
    with _recorded(layers) as recorded, imports_beside(location):
        net = build()
    paths = {id(cell): path for path, cell in net.cells_and_names()}
    rows: dict[str, list[str]] = {}
    for key, (cell, layer, arguments) in recorded.items():
        defaults = inspect.signature(layer).parameters
        lines = []
        for argument, new in layers[layer].items():
            if argument not in arguments:
                old = defaults[argument].default
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
            paths_of_line.append(paths.get(key, type(cell).__name__))
    return [f"{text} ({first_few(names)})" for text, names in rows.items()]
