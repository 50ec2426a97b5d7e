"""Change a torch call that computes a loss."""
# ruff: noqa: B023 (each function is called before its loop continues)

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from resnet_fn.parity.explain.calls import Call, Changes
from resnet_fn.parity.explain.factors import rounded, sizes_of, words_of_factor
from resnet_fn.parity.explain.sequences import is_number
from resnet_fn.parity.record.torch_decisions import is_float

_BETAS = (1.0, 0.5, 0.2, 1 / 9, 0.11, 0.1, 0.05, 0.02, 0.01)  # as detectors have them


def loss_changes(c: Call) -> Changes:
    """Yield other settings of a loss, and other losses."""
    own = c.bound.get("reduction", "mean")
    for reduction in ("sum", "mean"):
        if reduction != own:
            changed = c.again(reduction=reduction)
            title = f"{reduction} for {own}"
            if own != "none" and c.out:
                factor = float(changed.detach() / c.out.detach())
                title += f", a factor of {words_of_factor(factor, [c.x.shape])}"
            yield (
                title,
                lambda: changed,
            )
    if c.name == "cross_entropy":
        yield from _of_classes(c)
    elif c.name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        yield from _of_distances(c)


def _of_classes(c: Call) -> Changes:
    b = c.bound
    x = c.x
    smoothing = b.get("label_smoothing", 0.0)
    classes = x.shape[-1]
    for other in (0.0, 0.1, 0.2):
        title = f"label smoothing {other:g} for {smoothing:g}"
        yield (
            title,
            lambda: c.again(label_smoothing=other),
        )
    spread = f"label smoothing spread over the other {classes - 1} classes instead of all {classes}"
    yield (
        spread,
        lambda: c.again(label_smoothing=smoothing * classes / (classes - 1)),
    )
    yield (
        "softmax before it",
        lambda: c.again(input=torch.softmax(x, 1)),
    )
    yield (
        "logits taken as log-probabilities",
        lambda: F.nll_loss(x, b["target"]),
    )


def _of_distances(c: Call) -> Changes:
    b = c.bound
    arguments = c.x, b["target"]
    reduction = {"reduction": b.get("reduction", "mean")}
    own = {"smooth_l1_loss": "beta", "huber_loss": "delta"}.get(c.name, "")
    if own:
        value = b.get(own, 1.0)
        for other in _BETAS:
            title = f"{own} {other:.4g} for {value:.4g}"
            yield (
                title,
                lambda: c.again(**{own: other}),
            )
        yield (
            f"smooth L1, divided by its beta {value:.4g}, for {c.name}",
            lambda: F.smooth_l1_loss(*arguments, beta=value, **reduction),
        )
        yield (
            f"Huber, not divided by its delta {value:.4g}, for {c.name}",
            lambda: F.huber_loss(*arguments, delta=value, **reduction),
        )
    for name, other_loss in {
        "an L1 loss": F.l1_loss,
        "a squared error": F.mse_loss,
        "a smooth L1 loss": F.smooth_l1_loss,
    }.items():
        title = f"{name} for {c.name}"
        yield (
            title,
            lambda: other_loss(*arguments, **reduction),
        )
    yield (
        f"the root of {c.name}",
        lambda: c.out.sqrt(),
    )


def words_of_term(c: Call, factor: float, shapes: Sequence[Sequence[int]]) -> tuple[str, bool]:
    """Describe that a call's result is a multiple in the port, and whether sizes explain the
    factor.

    For a quotient or a mean, the divisor is described.
    """
    own = _divisor(c)
    if own is not None:
        number = rounded(own / factor)
        is_known = bool(sizes_of(number, shapes))
        if is_known or c.name == "div":
            title = f"divided by {words_of_factor(number, shapes)} for {own:.6g}"
            return title if c.name == "div" else f"{c.name} {title}", is_known
    multiplier = words_of_factor(factor, shapes)
    return f"the result of {c.name} multiplied by {multiplier}", bool(sizes_of(factor, shapes))


def _divisor(c: Call) -> float | None:
    """Return the number by which a call divides its result, or None."""
    if c.name == "div" and len(c.args) > 1 and is_number(c.args[1]):
        return float(c.args[1])
    is_mean = c.name == "mean" or c.bound.get("reduction") == "mean"
    return float(c.x.numel()) if is_mean and is_float(c.x) and c.name != "cross_entropy" else None
