"""Record every execution of a net's layers, in either framework."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from resnet_fn.parity.layers.layer import WHOLE, Layer, fingerprint, kind_of, parts_of
from resnet_fn.parity.layers.settings import settings_of


def recorded_layers(net: Any, containers: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """Every layer of a net by its path, except the net itself, containers and layers inside one that is compared whole.

    A layer with two names is listed once, under its first.
    """
    seen: set[int] = set()

    def walk(layer: Any, name: str) -> Iterator[tuple[str, Any]]:
        if layer is None or id(layer) in seen:
            return
        seen.add(id(layer))
        if name and not isinstance(layer, containers):
            yield name, layer
            if kind_of(layer) in WHOLE:
                return
        for part, inner in parts_of(layer).items():
            yield from walk(inner, f"{name}.{part}" if name else part)

    yield from walk(net, "")


def record_layers(
    layers: Iterable[tuple[str, Any]],
    run: Callable[[], Any],
    owned: Callable[[Any, bool], Iterable[tuple[str, Any]]],
    convert: Callable[[Any], np.ndarray],
    visit: Callable[[Layer], None] | None = None,
) -> list[Layer]:
    """Every execution of `layers` (`recorded_layers`) while `run` runs their net, of either framework, in order.

    `owned` gives a layer's parameters and statistics by leaf name, with those inside it or not; `convert` a tensor as a
    float64 array. `visit` is called with each layer once it has run; the list is then empty: all outputs together can
    be gigabytes.
    """
    executions: list[Layer] = []
    visit = visit or executions.append

    def hook_of(name: str, layer: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        kind, whole = kind_of(layer), kind_of(layer) in WHOLE
        shapes = tuple((leaf, tuple(value.shape)) for leaf, value in owned(layer, whole))
        leaf = whole or all(part is None for part in parts_of(layer).values())
        calls = itertools.count()
        taken: list[list[np.ndarray]] = []

        def before(layer: Any, inputs: Any, named: Any) -> None:
            taken.append([convert(value) for value in _tensors((inputs, named))])  # before a layer writes into them

        def hook(layer: Any, inputs: Any, named: Any, output: Any) -> None:
            given, result = taken.pop(), next(_tensors(output), None)
            first = given[0] if given else None
            visit(
                Layer(
                    name=name,
                    call=next(calls),
                    kind=kind,
                    class_name=type(layer).__name__,
                    settings=settings_of(layer, first),
                    input=first,
                    output=None if result is None else convert(result),
                    parameters=shapes,
                    leaf=leaf,
                    further=tuple(map(fingerprint, given[1:])) if whole else (),
                )
            )

        return before, hook

    with contextlib.ExitStack() as hooks:
        for name, layer in layers:
            before, hook = hook_of(name, layer)
            hooks.callback(layer.register_forward_pre_hook(before, with_kwargs=True).remove)
            hooks.callback(layer.register_forward_hook(hook, with_kwargs=True).remove)
        run()
    return executions


def leaves(tree: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every leaf of tuples, lists and dicts with its keys: ((), x) of a single x, (("mask",), x) of a dict's entry."""
    if isinstance(tree, Mapping):
        pairs: Iterable[tuple[Any, Any]] = tree.items()
    elif isinstance(tree, tuple | list):
        pairs = enumerate(tree)
    else:
        yield (), tree
        return
    for key, branch in pairs:
        for path, leaf in leaves(branch):
            yield (key, *path), leaf


def _tensors(tree: Any) -> Iterator[Any]:
    return (leaf for _, leaf in leaves(tree) if hasattr(leaf, "shape") and hasattr(leaf, "dtype"))
