"""Record every execution of a net's layers, in either framework."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from resnet_fn.parity.record.kinds import WHOLE, kind_of, parts_of
from resnet_fn.parity.record.layer_settings import settings_of
from resnet_fn.parity.record.packed import is_packed, padded
from resnet_fn.parity.trace.layer import Layer, fingerprint
from resnet_fn.parity.trace.returned import as_real, is_array, returned, shape_of
from resnet_fn.parity.trace.tree import leaves

# Classes that only hold other layers.
_CONTAINERS = {
    "torch.Sequential",
    "torch.ModuleList",
    "torch.ModuleDict",
    "mindspore.SequentialCell",
    "mindspore.CellList",
    "mindspore.CellDict",
}

_PRE_HOOKS = ("_forward_pre_hooks", "_forward_pre_hook")  # of PyTorch, of MindSpore


def recorded_layers(net: Any) -> Iterator[tuple[str, Any]]:
    """Yield (path, layer) for a net's layers, without containers and what is inside layers of kinds
    like attention.
    """
    seen: set[int] = set()  # hooks on a layer with two names would run twice

    def walk(layer: Any, name: str) -> Iterator[tuple[str, Any]]:
        if layer is None or id(layer) in seen:
            return
        seen.add(id(layer))
        if name and not _is_container(layer):
            yield name, layer
            if kind_of(layer) in WHOLE:
                return
        for part, inner in parts_of(layer).items():
            yield from walk(inner, f"{name}.{part}" if name else part)

    yield from walk(net, "")


def _is_container(layer: Any) -> bool:
    return any(
        f"{base.__module__.partition('.')[0]}.{base.__name__}" in _CONTAINERS
        for base in type(layer).__mro__
    )


def count_of_batches(layer: Any) -> str:
    """Return the name of the count of batches that a norm of torch, or a class derived from one,
    uses for no average, or "".

    A BatchNorm without `momentum` uses it.
    """
    names = [base.__name__ for base in type(layer).__mro__ if _is_of_torch(base)]
    averages = "_BatchNorm" in names and layer.momentum is None
    return "num_batches_tracked" if "_NormBase" in names and not averages else ""


def is_custom(layer: Any) -> bool:
    """Return whether a module of torch has a class, or a base, that is not torch's."""
    return not all(kind is object or _is_of_torch(kind) for kind in type(layer).__mro__)


def _is_of_torch(kind: type) -> bool:
    return kind.__module__.startswith("torch.")


def record_layers(net: Any, run: Callable[[], Any]) -> list[Layer]:
    """Call `run`, which runs a net of either framework, and return every execution of
    `recorded_layers` in order.
    """
    executions: list[Layer] = []

    def hook_of(name: str, layer: Any) -> tuple[Callable[..., None], Callable[..., None]]:
        kind, whole = kind_of(layer), kind_of(layer) in WHOLE
        shapes = tuple((leaf, shape_of(value)) for leaf, value in _owned(layer, whole))
        leaf = whole or all(part is None for part in parts_of(layer).values())
        calls = itertools.count()
        taken: list[list[np.ndarray]] = []

        def before(layer: Any, inputs: Any, named: Any) -> None:
            # a layer may write into inputs
            if inputs and is_packed(inputs[0]):
                array, _ = padded(inputs[0])
                taken.append([array])
                return
            taken.append([_array(value) for value in _tensors((inputs, named))])

        def hook(layer: Any, inputs: Any, named: Any, output: Any) -> None:
            arrays, (result, valid) = taken.pop(), _first_output(output)
            first = arrays[0] if arrays else None
            executions.append(
                Layer(
                    name=name,
                    call=next(calls),
                    kind=kind,
                    class_name=type(layer).__name__,
                    settings=settings_of(layer, first),
                    input=first,
                    output=result,
                    parameters=shapes,
                    leaf=leaf,
                    further=tuple(map(fingerprint, arrays[1:])) if whole else (),
                    valid=valid,
                )
            )

        return before, hook

    with contextlib.ExitStack() as hooks:
        for name, layer in recorded_layers(net):
            before, hook = hook_of(name, layer)
            hooks.callback(layer.register_forward_pre_hook(before, with_kwargs=True).remove)
            hooks.callback(layer.register_forward_hook(hook, with_kwargs=True).remove)
        run()
    return executions


@contextlib.contextmanager
def keeping_inputs(layer: Any, given: Callable[[], tuple[Any, Any]]) -> Iterator[None]:
    """Let a layer's own pre-hooks leave its inputs as they are: what the hooks have made of others.

    The hooks may set what the layer reads, such as a normalised weight, so that they run, too: with
    arguments that `given` makes for each, positional and by keyword. They may reject these.
    """

    def without_effect(hook: Callable[..., Any]) -> Callable[..., None]:
        def run(layer: Any, *arguments: Any) -> None:
            with contextlib.suppress(Exception):
                hook(layer, *given()[: len(arguments)])

        return run

    own = [(hooks, dict(hooks)) for name in _PRE_HOOKS if (hooks := getattr(layer, name, None))]
    for hooks, before in own:
        for key, hook in before.items():
            hooks[key] = without_effect(hook)
    try:
        yield
    finally:
        for hooks, before in own:
            hooks.update((key, before[key]) for key in hooks.keys() & before.keys())


def _owned(layer: Any, inside: bool) -> Iterable[tuple[str, Any]]:
    """Return (leaf name, tensor) for a layer's parameters and statistics.

    If `inside` is True, include inner layers.
    """
    if hasattr(layer, "parameters_and_names"):  # a MindSpore cell
        return layer.parameters_and_names(expand=inside)
    owned = (*layer.named_parameters(recurse=inside), *layer.named_buffers(recurse=inside))
    count = count_of_batches(layer)
    return [(leaf, value) for leaf, value in owned if leaf != count]


def _array(tensor: Any) -> np.ndarray:
    if hasattr(tensor, "__torch_function__"):
        tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
        tensor = tensor if tensor.dtype.is_complex else tensor.double()
    return np.array(as_real(tensor.numpy()), np.float64)


def _first_output(output: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the first tensor of an output and, if it is packed sequences, a mask of their steps."""
    candidates = [output]
    if isinstance(output, tuple):
        candidates += output[:1]
    for candidate in candidates:
        if is_packed(candidate):
            return padded(candidate)
    for _, leaf in returned(output):
        if _is_tensor(leaf):
            return _array(leaf), None
    return None, None


def _tensors(tree: Any) -> Iterator[Any]:
    return (leaf for _, leaf in leaves(tree) if _is_tensor(leaf))


def _is_tensor(leaf: Any) -> bool:
    return is_array(leaf) and hasattr(leaf, "numpy")
