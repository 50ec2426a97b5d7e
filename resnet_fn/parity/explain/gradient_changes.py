"""Change the gradients of a torch call, but not its result."""
# ruff: noqa: B023 (each function is called before its loop continues)

from collections.abc import Sequence
from typing import Any

from torch.nn import functional as F

from resnet_fn.parity.explain.calls import Call, Changes
from resnet_fn.parity.explain.sequences import keeps_shape
from resnet_fn.parity.record.torch_decisions import is_float


def gradient_changes(c: Call) -> Changes:
    """Yield the possible changes of a call that change its gradients, but not its result."""
    if c.name == "set_grad_enabled" and c.args == (False,):
        yield (
            "torch.no_grad left out",
            lambda: c.function(True),
        )
    if c.name == "detach" and _has_gradient(c.x):
        yield (
            "detach left out, so the gradient passes",
            lambda: c.x + 0,
        )
    yield from _of_parts(c)
    if not _has_gradient(c.out):
        return
    yield from _on_the_other(c)
    padding = c.bound.get("padding_idx")
    if c.name == "embedding" and (padding or 0) >= 0:
        weight = c.bound["weight"]
        yield (
            f"its padding row {padding} trained",
            lambda: F.embedding(c.x, weight),
        )
    if keeps_shape(c) and not c.name.endswith("norm"):
        yield (
            "the gradient passed through as it is",
            lambda: c.x + (c.out - c.x).detach(),
        )
    for number, argument in enumerate(c.args):
        if _has_gradient(argument):
            yield (
                f"no gradient to argument {number + 1} of {c.name}",
                lambda: c.with_argument(number, argument.detach()),
            )
        elif isinstance(argument, list | tuple):
            yield from _into_parts(c, number, argument)


def _has_gradient(value: Any) -> bool:
    return is_float(value) and value.requires_grad


def _into_parts(c: Call, number: int, parts: Sequence[Any]) -> Changes:
    """Yield a change for each part that a call joins: no gradient to this part."""
    for index, part in enumerate(parts):
        if _has_gradient(part):
            others = [*parts]
            others[index] = part.detach()
            yield (
                f"no gradient to part {index + 1} of {c.name}",
                lambda: c.with_argument(number, others),
            )


def _of_parts(c: Call) -> Changes:
    """Yield a change for each part that a call returns: no gradient from this part."""
    if not isinstance(c.out, tuple):
        return
    for index, part in enumerate(c.out):
        if _has_gradient(part):
            parts = [*c.out]
            parts[index] = part.detach()
            yield (
                f"no gradient from part {index + 1} of {c.name}",
                lambda: tuple(parts),
            )


def _on_the_other(c: Call) -> Changes:
    """Yield a change for each detached argument: another argument is detached in its place."""
    for number, original in c.undetached.items():
        for other, argument in enumerate(c.args):
            if other == number or not _has_gradient(argument):
                continue
            arguments = [*c.args]
            arguments[number] = original
            arguments[other] = argument.detach()
            detached = f"argument {other + 1} of {c.name}"
            yield (
                f"detach on {detached} for argument {number + 1}",
                lambda: c.function(*arguments, **c.kwargs),
            )
