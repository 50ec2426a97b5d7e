"""What every layer takes and gives, in execution order, recorded from a torch module and from a MindSpore cell."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops


@dataclasses.dataclass
class Layer:
    """One execution of a layer.

    Attributes:
        name: its path in the net; "layer1.0.relu".
        call: how many times the layer had run before.
        kind: what it is, in either framework: "conv", "norm", "dense", "relu", "maxpool", "avgpool", or its class.
        layer: the torch module or the cell itself.
        input, output: its first input and its output, float64; None for what is not one tensor.
        parameters: (leaf name, shape) of the parameters that it owns, statistics included.
        leaf: whether no recorded layer runs inside it.
    """

    name: str
    call: int
    kind: str
    layer: Any
    input: np.ndarray | None
    output: np.ndarray | None
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    leaf: bool

    @property
    def title(self) -> str:
        """The name, with the call's number from the second call on: "layer1.0.relu (2)"."""
        return self.name if not self.call else f"{self.name} ({self.call + 1})"


_KINDS = {
    "Conv": "conv",
    "BatchNorm": "norm",
    "GroupNorm": "norm",
    "LayerNorm": "norm",
    "Linear": "dense",
    "Dense": "dense",
    "MaxPool": "maxpool",
    "AvgPool": "avgpool",
    "AdaptiveAvgPool": "avgpool",
    "ReLU": "relu",
}


def _kind_of(layer: Any) -> str:
    """What a layer is, the same word in both frameworks; its class's name where there is none."""
    name = type(layer).__name__
    return next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix) and name != "ReLU6"), name.lower())


def fingerprint(array: np.ndarray) -> str:
    """A digest by which a layer's input is recognised as another layer's output."""
    return hashlib.blake2b(np.ascontiguousarray(array, np.float32).tobytes(), digest_size=16).hexdigest()


def record_torch(module: Any, images: np.ndarray, train: bool) -> list[Layer]:
    """Run a torch module on images [N, C, H, W] and record every layer; statistics and modes are left as found."""
    import torch

    layers: list[Layer] = []
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    kept = {name: value.clone() for name, value in module.state_dict().items()}
    was_training = module.training
    handles = []
    for name, layer in module.named_modules():
        if not name or isinstance(layer, torch.nn.Sequential | torch.nn.ModuleList | torch.nn.ModuleDict):
            continue
        owned = (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False))
        shapes = tuple((leaf, tuple(value.shape)) for leaf, value in owned if leaf != "num_batches_tracked")
        is_leaf = not any(True for _ in layer.children())
        hook = _hook(layers.append, name, shapes, is_leaf, lambda value: value.detach().cpu().double().numpy().copy())
        handles.append(layer.register_forward_hook(hook))
    try:
        module.train(train)
        with torch.no_grad():
            module(torch.from_numpy(images).to(dtype))
    finally:
        for handle in handles:
            handle.remove()
        module.load_state_dict(kept)
        module.train(was_training)
    return layers


def record_cell(
    net: nn.Cell, images: np.ndarray, train: bool, visit: Callable[[Layer], None] | None = None
) -> list[Layer]:
    """Run a cell on images [N, C, H, W] operation by operation and record every layer; statistics stay as they were.

    It runs outside the compiled functions, which do not let anyone look inside; that both give the same logits is
    a stage of the ladder.

    Args:
        net, images: what to run, on what.
        train: whether in training mode.
        visit: is called with each layer as it has run, and nothing is returned: all outputs together can be gigabytes.
    """
    layers: list[Layer] = []
    visit = visit or layers.append
    handles = []
    for name, layer in named_layers(net):
        owned = layer.parameters_and_names(expand=False)
        shapes = tuple((leaf, tuple(parameter.shape)) for leaf, parameter in owned)
        is_leaf = not any(True for _ in layer.cells())
        hook = _hook(visit, name, shapes, is_leaf, lambda value: value.asnumpy().astype(np.float64))
        handles.append(layer.register_forward_hook(hook))
    with unchanged(net, handles):
        net.set_train(train)
        net(Tensor(images))
    return layers


def named_layers(net: nn.Cell) -> Iterator[tuple[str, nn.Cell]]:
    """Every cell of a net by its path, but for the net itself and mere sequences.

    A relu that is used twice is one cell under one name; an alias of a cell would be hooked twice.
    """
    for name, layer in net.cells_and_names():
        if name and not isinstance(layer, nn.SequentialCell | nn.CellList):
            yield name, layer


@contextlib.contextmanager
def unchanged(net: nn.Cell, handles: list[Any]) -> Iterator[None]:
    """Put parameters and statistics back at the end, and remove hooks."""
    kept = [(parameter, parameter.asnumpy().copy()) for parameter in net.get_parameters()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for parameter, value in kept:
            ops.assign(parameter, Tensor(value, mindspore.float32))


def _hook(
    visit: Callable[[Layer], None],
    name: str,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    leaf: bool,
    convert: Callable[[Any], np.ndarray],
) -> Callable[[Any, Any, Any], None]:
    calls = 0

    def array(value: Any) -> np.ndarray | None:
        return convert(value) if hasattr(value, "shape") and hasattr(value, "dtype") else None

    def hook(layer: Any, inputs: Any, output: Any) -> None:
        nonlocal calls
        first = inputs[0] if isinstance(inputs, tuple) and inputs else inputs
        visit(Layer(name, calls, _kind_of(layer), layer, array(first), array(output), shapes, leaf))
        calls += 1

    return hook
