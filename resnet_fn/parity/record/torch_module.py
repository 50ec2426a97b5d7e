"""Read, convert and call a torch module; PyTorch's version and settings."""

import contextlib
import inspect
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from resnet_fn.parity.record.common import place_of, what_failed
from resnet_fn.parity.record.layers import count_of_batches, is_custom
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.trace.environment import environment
from resnet_fn.parity.trace.layer import title_of
from resnet_fn.parity.trace.returned import as_real, named_outputs
from resnet_fn.parity.trace.tree import Arrays, Tree, map_tree, map_values

# what functions raise for inputs of other shapes or types, and checks of sizes
_OF_INPUTS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)

# Arguments of Hugging Face's nets that choose what is returned, and in which form. docs/parity.md
_SWITCHES = {
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "return_dict",
    "return_legacy_cache",
    "use_cache",
}

FRAMEWORK = f"PyTorch {torch.__version__.partition('+')[0]}"


def environment_of_process() -> dict[str, str]:
    """Return versions, threads and kernels of this process."""
    return environment(
        device="CPU",
        threads=torch.get_num_threads(),
        deterministic="ON" if torch.are_deterministic_algorithms_enabled() else "OFF",
        HF32="off" if torch.get_float32_matmul_precision() == "highest" else "as it comes",
        kernels=torch.backends.cpu.get_cpu_capability(),
    )


def uncompiled(module: torch.nn.Module) -> torch.nn.Module:
    """Return a module without `torch.compile`, which hides layers and renames parameters.

    A module with compiled layers inside is copied.
    """
    module = _original(module)
    # `module.compile()` compiles a module in place
    compiled = (
        submodule._compiled_call_impl or _original(submodule) is not submodule
        for submodule in module.modules()
    )
    if not any(compiled):
        return module
    module = copied(module)
    for layer in [*module.modules()]:
        layer._compiled_call_impl = None
        for name, inner in [*layer.named_children()]:
            setattr(layer, name, _original(inner))
    return module


def _original(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module that `torch.compile` got, if this is what it returned."""
    # the class is not imported: that takes seconds
    is_compiled = type(module).__name__ == "OptimizedModule"
    return module.get_submodule("_orig_mod") if is_compiled else module


def initialise(module: torch.nn.Module, inputs: Tree) -> None:
    """Run a module with lazy parameters once on a batch, which gives the parameters their sizes."""
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
        was_training = module.training
        with torch.no_grad():
            call(module.eval(), tensors(inputs, torch.float32))
        module.train(was_training)


def layers_by_path(module: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return a module's layers by path. A forward pass may exchange some."""
    return dict(module.named_modules())


def dtype_of(module: torch.nn.Module) -> torch.dtype:
    """Return the type of a module's parameters."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def state(module: torch.nn.Module, views: bool = False) -> Arrays:
    """Return the parameters and buffers of a module as arrays by name, without `unused_counts` and
    the extra state of layers (`get_extra_state`). Buffers that the state dict leaves out come last.
    With `views`, the arrays are in the memory of the module where that is possible.
    """
    left_out = unused_counts(module)
    values = module.state_dict()
    values |= {name: buffer for name, buffer in module.named_buffers() if name not in values}
    return {
        name: view_of(value) if views else array_of(value)
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
        and name not in left_out
        and name.rpartition(".")[2] != "_extra_state"
    }


def unused_counts(module: torch.nn.Module) -> set[str]:
    """Return the names of the counts of batches (`counts_of_batches`) in PyTorch's own norms, which
    read none. The code of custom norms may read theirs.
    """
    return _counts(module, _unused_count)


def _unused_count(layer: torch.nn.Module) -> str:
    return "" if is_custom(layer) else count_of_batches(layer)


def counts_of_batches(module: torch.nn.Module) -> set[str]:
    """Return the names of the counts of batches (`count_of_batches`)."""
    return _counts(module, count_of_batches)


def _counts(module: torch.nn.Module, leaf_of: Callable[[torch.nn.Module], str]) -> set[str]:
    # a layer with several names has several counts in the state dict
    counts = set()
    for path, layer in module.named_modules(remove_duplicate=False):
        if leaf := leaf_of(layer):
            counts.add(f"{path}.{leaf}" if path else leaf)
    return counts


def outputs_of(value: Any) -> Arrays:
    """Return tensors, arrays, numbers and texts in a module's outputs as arrays by name.

    Integers and booleans keep their type. A single tensor has the name "logits".
    """
    outputs = {}
    for name, leaf in named_outputs(value).items():
        if not isinstance(leaf, torch.Tensor):
            outputs[name] = as_real(np.array(leaf))
            continue
        if leaf.dtype in (torch.float16, torch.bfloat16):
            leaf = leaf.float()
        outputs[name] = array_of(leaf)
    return outputs


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy of a tensor's numbers, with an axis for the parts of complex numbers."""
    return view_of(tensor).copy()


def view_of(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor's numbers as `array_of` does, in the tensor's memory if that is possible."""
    plain = tensor.detach().cpu()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.dtype == torch.bfloat16:  # NumPy has no such type
        plain = plain.float()
    return as_real(plain.resolve_conj().resolve_neg().numpy())


def in_precision(module: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """Convert a module's floats to a type, and complex numbers to pairs of this type."""
    if not any(tensor.dtype.is_complex for tensor in (*module.parameters(), *module.buffers())):
        return module.to(dtype)
    pairs = torch.complex128 if dtype == torch.float64 else torch.complex64

    def converted(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_complex():
            return tensor.to(pairs)
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return module._apply(converted)


def with_masks(
    module: torch.nn.Module, masks: Mapping[str, Sequence[np.ndarray]], left: Collection[str] = ()
) -> torch.nn.Module:
    """Return a copy of a module whose layers multiply outputs by `masks` in training mode, one mask
    for each call.

    The executions of layers with the titles `left` keep their output.
    """
    module = copied(module)

    def multiply(values: Sequence[np.ndarray]) -> Callable[..., torch.Tensor | None]:
        tensors, calls = [torch.tensor(value) for value in values], itertools.count()

        def hook(layer: torch.nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor | None:
            return (
                output * tensors[next(calls) % len(tensors)].to(output.dtype)
                if layer.training
                else None
            )

        return hook

    for name, calls in masks.items():
        values = [
            np.ones_like(mask) if title_of(name, call) in left else mask
            for call, mask in enumerate(calls)
        ]
        module.get_submodule(name).register_forward_hook(multiply(values))
    return module


def tensors(tree: Tree, dtype: torch.dtype) -> Tree:
    """Return the tree with arrays copied to tensors. Floats get the type `dtype`."""
    # Arrays are copied, because a module may write into its inputs.
    return map_tree(
        lambda leaf: torch.from_numpy(np.array(leaf)).to(dtype if leaf.dtype.kind == "f" else None),
        tree,
    )


def first_call(module: torch.nn.Module, inputs: Tree, train: bool = False) -> Any:
    """Return the outputs of a copy of a module on a batch.

    An error becomes a ValueError that lists the inputs.
    """
    try:
        with torch.no_grad():
            return call(copied(module).train(train), tensors(inputs, torch.float32))
    except Exception as error:
        fix = "add --debug to see where it fails"
        if isinstance(error, _OF_INPUTS):
            fix = "give --inputs, or sizes that the module takes"
        elif place_of(error):
            fix = "correct this line"
        if train and _runs(module, inputs):
            fix = "correct this line; in evaluation mode, it runs"
        raise what_failed("reference", inputs, error, fix, train) from error


def _runs(module: torch.nn.Module, inputs: Tree) -> bool:
    """Return whether a module runs in evaluation mode."""
    with contextlib.suppress(ValueError):
        first_call(module, inputs)
        return True
    return False


def map_tensors(function: Callable[[torch.Tensor], torch.Tensor], tree: Any) -> Any:
    """Return nested tuples, lists and dicts with `function` applied to every tensor."""
    return map_values(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)


@contextlib.contextmanager
def layer_by_layer() -> Iterator[None]:
    """Switch torch's fused transformer kernels off inside a `with` block."""
    was = torch.backends.mha.get_fastpath_enabled()
    # fused kernels skip hooks, and return zeros for hidden tokens
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(was)


def call(module: torch.nn.Module, inputs: Tree) -> Any:
    """Return the module's outputs.

    A tuple is passed as positional arguments, a dict as keyword arguments.
    """
    with layer_by_layer():
        if isinstance(inputs, dict):
            return module(**inputs)
        return module(*inputs) if isinstance(inputs, tuple) else module(inputs)


def not_given(module: torch.nn.Module, inputs: Tree) -> list[str]:
    """Return the arguments of a module that are None, because the inputs do not give them; without
    `_SWITCHES`.
    """
    try:
        taken = inspect.signature(module.forward).parameters
    except ValueError:  # C code has none
        return []
    values = inputs if isinstance(inputs, tuple) else (inputs,)
    named = inputs if isinstance(inputs, dict) else dict(zip(taken, values, strict=False))
    left = [
        name
        for name, parameter in taken.items()
        if parameter.default is None and named.get(name) is None
    ]
    return [name for name in left if name not in _SWITCHES]
