"""Build the recipe's loss, optimizer and moving average in PyTorch.

What PyTorch lacks, such as LARS and focal loss, follows its paper.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from resnet_fn.config.optimizers import settings_read_by
from resnet_fn.parity.record.common import loss_of_logits, mean_size
from resnet_fn.parity.trace.plan import MEAN_SIZE, AveragePlan, LossPlan, OptimizerPlan


def recipe_loss(plan: LossPlan) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the recipe's loss as a function of (logits, labels). The loss is the mean over the
    batch.

    Logits are [n, classes]. Labels are class numbers [n], or probabilities [n, classes] of mixed
    samples. The recipe's `label_threshold` is applied where samples are mixed, not here.
    """

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        smoothing = plan.smoothing
        if plan.name == "cross_entropy" and plan.over == "all":
            dtype = logits.dtype if labels.is_floating_point() else torch.long
            labels = labels.to(dtype)
            return functional.cross_entropy(logits, labels, label_smoothing=smoothing)
        targets = _smoothed(labels, logits, smoothing, plan.over)
        if plan.name == "cross_entropy":
            return functional.cross_entropy(logits, targets)
        if plan.name == "bce":  # the mean over samples and classes, as timm's BinaryCrossEntropy
            return functional.binary_cross_entropy_with_logits(logits, targets)
        return _focal(logits, targets).sum(1).mean()

    return loss


def loss_of(plan: LossPlan, outputs: Any) -> Callable[[Any, Any], Any]:
    """Return the plan's loss as a function of (outputs, labels). `outputs` is an example."""
    if plan.name == MEAN_SIZE:
        return mean_size(outputs)
    return loss_of_logits("the reference", outputs, recipe_loss(plan))


def _smoothed(
    labels: torch.Tensor, logits: torch.Tensor, smoothing: float, over: str
) -> torch.Tensor:
    """Return labels as probabilities, smoothed over all classes or over all classes except the
    label's.
    """
    classes = logits.shape[1]
    targets = labels
    if not labels.is_floating_point():
        targets = functional.one_hot(labels.long(), classes)
    targets = targets.to(logits.dtype)
    if over == "others":
        return targets * (1 - smoothing) + (1 - targets) * smoothing / (classes - 1)
    return targets * (1 - smoothing) + smoothing / classes


def _focal(
    logits: torch.Tensor, targets: torch.Tensor, alpha: float = 0.25, gamma: float = 2.0
) -> torch.Tensor:
    """Return the focal loss of each sample and class (Lin et al., arXiv 1708.02002, equation 5)."""
    entropy = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p = torch.sigmoid(logits)
    others = 1 - targets
    p_t = p * targets + (1 - p) * others
    alpha_t = alpha * targets + (1 - alpha) * others
    return alpha_t * (1 - p_t) ** gamma * entropy


_NORM_LAYERS = (torch.nn.modules.batchnorm._NormBase, torch.nn.GroupNorm, torch.nn.LayerNorm)


def decay_groups(
    module: torch.nn.Module, weight_decay: float, decay_all: bool = False
) -> list[dict[str, Any]]:
    """Return two torch.optim parameter groups.

    Biases and norm layers have no weight decay, except with `decay_all`.
    """
    undecayed = set() if decay_all else _undecayed(module)
    decayed: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for parameter in module.parameters():
        if parameter.requires_grad:
            group = rest if id(parameter) in undecayed else decayed
            group.append(parameter)
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]


def _undecayed(module: torch.nn.Module) -> set[int]:
    """Return the ids of biases and of the parameters of norm layers."""
    undecayed = set()
    for layer in module.modules():
        is_norm = isinstance(layer, _NORM_LAYERS)
        for leaf, parameter in layer.named_parameters(recurse=False):
            parts = leaf.split("_")
            is_bias = "bias" in (parts[0], parts[-1])
            if is_norm or is_bias:
                undecayed.add(id(parameter))
    return undecayed


def recipe_optimizer(plan: OptimizerPlan, module: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the recipe's optimizer for a module.

    The learning rate is 1, so set "lr" before each step.
    """
    groups = decay_groups(module, plan.weight_decay, plan.decay_all)
    momentum = plan.momentum
    settings = settings_read_by(plan.name, plan.settings)
    if plan.name == "sgd":
        return torch.optim.SGD(groups, lr=1.0, momentum=momentum, **settings)
    adams = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if plan.name in adams:
        betas = (momentum, settings["beta2"])
        return adams[plan.name](groups, lr=1.0, betas=betas, eps=settings["epsilon"])
    others: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "lars": Lars,
        "lamb": Lamb,
        "lion": Lion,
    }
    return others[plan.name](groups, momentum, **settings)


class Lars(torch.optim.Optimizer):
    """LARS (You et al., arXiv 1708.03888, algorithm 1).

    The local rate is 1 without weight decay or if a norm is 0.
    """

    def __init__(self, groups: Any, momentum: float, trust_coefficient: float) -> None:
        super().__init__(groups, {"lr": 1.0, "weight_decay": 0.0})
        self.momentum = momentum
        self.trust_coefficient = trust_coefficient

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            rate = group["lr"]
            decay = group["weight_decay"]
            for w in _with_gradient(group):
                g = w.grad
                w_norm = torch.linalg.vector_norm(w)
                g_norm = torch.linalg.vector_norm(g)
                local = 1.0
                if decay and w_norm > 0 and g_norm > 0:
                    decayed = g_norm + decay * w_norm
                    local = self.trust_coefficient * w_norm / decayed
                state = self.state[w]
                v = state.setdefault("momentum_buffer", torch.zeros_like(w))
                v.mul_(self.momentum)
                step = rate * local * (g + decay * w)
                v.add_(step)
                w.sub_(v)


def _with_gradient(group: Mapping[str, Any]) -> list[torch.Tensor]:
    return [parameter for parameter in group["params"] if parameter.grad is not None]


class Lamb(torch.optim.Optimizer):
    """The optimizer LAMB (You et al., arXiv 1904.00962, algorithm 2), with bias correction as in
    timm.

    The layer-wise ratio ‖w‖ / ‖r + decay · w‖ is 1 without weight decay, or if a norm is 0.
    """

    def __init__(self, groups: Any, momentum: float, beta2: float, epsilon: float) -> None:
        super().__init__(groups, {"lr": 1.0, "weight_decay": 0.0})
        self.betas = (momentum, beta2)
        self.epsilon = epsilon

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update every parameter that has a gradient."""
        beta1, beta2 = self.betas
        for group in self.param_groups:
            decay = group["weight_decay"]
            for w in _with_gradient(group):
                state = self.state[w]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(w)
                    state["exp_avg_sq"] = torch.zeros_like(w)
                state["step"] += 1
                t = state["step"]
                m = state["exp_avg"]
                v = state["exp_avg_sq"]
                g = w.grad
                m.mul_(beta1).add_(g, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
                m_hat = m / (1 - beta1**t)
                v_hat = v / (1 - beta2**t)
                u = m_hat / (v_hat.sqrt() + self.epsilon) + decay * w
                w_norm = torch.linalg.vector_norm(w)
                u_norm = torch.linalg.vector_norm(u)
                if decay and w_norm > 0 and u_norm > 0:
                    ratio = w_norm / u_norm
                    u = u * ratio
                w.sub_(group["lr"] * u)


class Lion(torch.optim.Optimizer):
    """The optimizer Lion (Chen et al., arXiv 2302.06675, algorithm 2)."""

    def __init__(self, groups: Any, momentum: float, beta2: float) -> None:
        super().__init__(groups, {"lr": 1.0, "weight_decay": 0.0})
        self.betas = (momentum, beta2)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update every parameter that has a gradient."""
        beta1, beta2 = self.betas
        for group in self.param_groups:
            rate = group["lr"]
            decay = group["weight_decay"]
            for w in _with_gradient(group):
                state = self.state[w]
                m = state.setdefault("exp_avg", torch.zeros_like(w))
                g = w.grad
                ahead = beta1 * m
                ahead.add_(g, alpha=1 - beta1)
                step = torch.sign(ahead)
                w.sub_(rate * (step + decay * w))
                m.mul_(beta2)
                m.add_(g, alpha=1 - beta2)


class Average(AveragedModel):
    """The recipe's moving average of a module's weights and statistics. The averaged net is the
    attribute `module`.

    As in torchvision's training script, the average moves every `plan.every` updates. In the first
    `plan.start` updates, the average is a copy of the weights.
    """

    def __init__(self, module: torch.nn.Module, plan: AveragePlan) -> None:
        move = get_ema_multi_avg_fn(plan.decay)
        super().__init__(module, multi_avg_fn=move, use_buffers=True)
        self.update_parameters(module)  # torch's first move is always a copy
        self._every = plan.every
        self._start = plan.start
        self._updates = 0

    def update(self, module: torch.nn.Module) -> None:
        """Move the average. Call this after each update of the module."""
        self._updates += 1
        if self._updates <= self._start:
            self.n_averaged.fill_(0)  # so that the next move copies the weights
        elif self._updates % self._every:
            return
        self.update_parameters(module)
