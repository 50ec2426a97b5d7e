"""A torch module that is computed in several ways."""

import contextlib
import copy
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch

from resnet_fn.parity.record.layers import recorded_layers
from resnet_fn.parity.record.rates import Rates
from resnet_fn.parity.record.torch_copy import copied
from resnet_fn.parity.record.torch_layers import layers_of, layers_with_rounding
from resnet_fn.parity.record.torch_modes import in_float64
from resnet_fn.parity.record.torch_module import (
    FRAMEWORK,
    array_of,
    call,
    dtype_of,
    first_call,
    in_precision,
    initialise,
    map_tensors,
    outputs_of,
    state,
    tensors,
    uncompiled,
)
from resnet_fn.parity.record.torch_optimizer import optimizer_of
from resnet_fn.parity.record.torch_recipe import loss_of
from resnet_fn.parity.record.torch_run import Loss, MakeOptimizer, TorchRun, Training
from resnet_fn.parity.record.torch_side import TorchSide
from resnet_fn.parity.trace.data import Run, Trace
from resnet_fn.parity.trace.difference import norm
from resnet_fn.parity.trace.layer import Layer
from resnet_fn.parity.trace.plan import Plan
from resnet_fn.parity.trace.returned import unread
from resnet_fn.parity.trace.stages import EVAL_FORWARD
from resnet_fn.parity.trace.tree import Tree
from resnet_fn.parity.ways.half import rounded, rounded_inputs
from resnet_fn.parity.ways.updates import updates_of
from resnet_fn.parity.ways.way import errors_of


class TorchNet:
    """A torch module, of which each way gets a copy.

    Args:
        module: the net as it was built.
        plan: the updates.
        loss: a function (outputs, labels) → scalar; by default the plan's.
        make_optimizer: returns an optimizer of a module; by default the plan's.
    """

    compiler, compiles_always = "torch.compile", False

    def __init__(
        self,
        module: torch.nn.Module,
        plan: Plan,
        loss: Loss | None = None,
        make_optimizer: MakeOptimizer | None = None,
    ) -> None:
        self.framework, self.plan = FRAMEWORK, plan
        self._module, self._given = uncompiled(module), (loss, make_optimizer)
        initialise(self._module, plan.batches[0][0])

    @contextlib.contextmanager
    def fresh(self) -> Iterator["TorchNet"]:
        """Return a copy. Torch's generator is put back."""
        with torch.random.fork_rng():
            yield TorchNet(copied(self._module), self.plan, *self._given)

    def evaluated(self, inputs: Tree) -> Trace:
        """Return the state, layers and outputs of an evaluation."""
        return self._trace(self._module, layers_of(self._module, inputs, False), inputs)

    def _trace(self, module: torch.nn.Module, layers: list[Layer], inputs: Tree) -> Trace:
        """Return what a module returns, with this net's state."""
        start = state(self._module)
        with torch.no_grad():
            returned = call(module.eval(), tensors(inputs, dtype_of(module)))
            outputs = outputs_of(returned)
        run, left = Run(outputs, start, []), sorted(unread(returned))
        return Trace(self.framework, self.plan, start, {"eval": layers}, run, unread=left)

    def with_rounding(self, inputs: Tree) -> Trace:
        """Return an evaluation, with the errors of outputs and layers against float64.

        A module that fails in float64 has none, so that the tolerances alone decide.
        """
        module = self._module
        try:
            layers, _ = layers_with_rounding(module, inputs, False, "float32")
            with in_float64(), torch.no_grad():
                wide = in_precision(copied(module), torch.float64).eval()
                exact = outputs_of(call(wide, tensors(inputs, torch.float64)))
        except ValueError:
            return self.evaluated(inputs)
        trace = self._trace(module, layers, inputs)
        trace.rounding[EVAL_FORWARD] = errors_of(exact, trace.run.eval_outputs)
        return trace

    def train(self) -> None:
        """Make the plan's updates without dropout, in float32. Each array gets its type back."""
        before = self._module
        _, self._module = self._trained(self.plan, compiled=False)
        dtypes = {name: array.dtype for name, array in _arrays_of(before)}
        for name, array in _arrays_of(self._module):
            array.data = array.data.to(dtypes.get(name, array.dtype))

    def _trained(self, plan: Plan, compiled: bool) -> tuple[Trace, torch.nn.Module]:
        """Return the trace of a plan's updates without dropout, and the trained copy."""
        loss, make_optimizer = self._given
        inputs = plan.batches[0][0]
        loss = loss or loss_of(plan.loss, first_call(self._module, inputs, True))
        training = Training(plan, loss, make_optimizer, _as_is)
        run = TorchRun(self._module, training, "float32")
        module = run.module
        if compiled:
            module.compile()
        layers = dict(module.named_modules())
        with Rates(layers).off(layers):
            made = Run(run.evaluate(inputs), state(module), list(plan.rates))
            optimizer, set_rate = optimizer_of(module, plan.optimizer, make_optimizer)
            for batch, rate in zip(plan.batches, plan.rates, strict=True):
                set_rate(rate)
                optimizer.zero_grad()
                value, outputs, _ = run.backward(batch)
                made.losses.append(value)
                made.train_outputs.append(outputs)
                gradients = run.gradients()
                made.gradients = made.clipped = made.gradients or gradients
                made.norms.append(math.hypot(*map(norm, gradients.values())))
                optimizer.step()
                made.after.append(state(module))
            made.last_outputs = run.evaluate(inputs)
        recorded = {"eval": layers_of(self._module, inputs, False)}
        return Trace(self.framework, plan, made.start, recorded, made), module

    def saved(self) -> Any:
        """Return a copy of the state dict."""
        return copy.deepcopy(self._module.state_dict())

    def restore(self, saved: Any) -> None:
        """Load a state dict."""
        self._module.load_state_dict(saved)

    def updates(self, plan: Plan) -> Trace:
        """Return the trace of a plan's updates of a copy."""
        return updates_of(TorchSide(copied(self._module), plan, *self._given))

    def compiled(self, plan: Plan) -> tuple[Trace, Trace]:
        """Return the traces of the plan's updates: by `torch.compile`, and not compiled."""
        measured = None
        # raises NotApplicableError if the net draws random numbers, and ValueError if it does not
        # run in float64: then tolerances alone decide
        with contextlib.suppress(ValueError):
            measured = self.updates(dataclasses.replace(plan, precision="fp32"))  # as the traces
        compiled, _ = self._trained(plan, compiled=True)
        eager, _ = self._trained(plan, compiled=False)
        if measured:
            eager.rounding, eager.changing = measured.rounding, measured.changing
            compiled.unread = eager.unread = measured.unread
        return compiled, eager

    def in_half(self, inputs: Tree, half: str) -> Trace:
        """Return an evaluation of a copy whose parameters are in half precision."""
        module = in_precision(copied(self._module), getattr(torch, half))
        return self._trace(module, layers_of(module, inputs, False), inputs)

    def rounded_to(self, inputs: Tree, half: str) -> Trace:
        """Return an evaluation with rounded weights, and rounded inputs and outputs of layers."""

        def round_tensor(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point():
                return tensor
            return torch.from_numpy(rounded(array_of(tensor), half)).to(tensor.dtype)

        def before(layer: Any, args: Any, kwargs: Any) -> Any:
            return map_tensors(round_tensor, (args, kwargs))

        def after(layer: Any, args: Any, outputs: Any) -> Any:
            return map_tensors(round_tensor, outputs)

        module = copied(self._module)
        with torch.no_grad():
            for saved in (*module.parameters(), *module.buffers()):
                saved.copy_(round_tensor(saved))
        for _, layer in recorded_layers(module):
            layer.register_forward_pre_hook(before, with_kwargs=True)
            layer.register_forward_hook(after)
        inputs = rounded_inputs(inputs, half)
        return self._trace(module, layers_of(module, inputs, False), inputs)


def _arrays_of(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the parameters and buffers of a module by name."""
    yield from module.named_parameters()
    yield from module.named_buffers()


def _as_is(module: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()
