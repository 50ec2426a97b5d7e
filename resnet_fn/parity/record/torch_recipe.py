"""Build the recipe's loss, optimizer and moving average in PyTorch.

LARS, LAMB and focal loss follow their papers.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from resnet_fn.parity.trace.plan import AveragePlan, LossPlan, OptimizerPlan


def recipe_loss(plan: LossPlan) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the recipe's loss as a function of (logits, labels). The loss is the mean over the
    batch.

    Logits are [n, classes]. Labels are class numbers [n], or probabilities [n, classes] of mixed
    samples. The recipe's `label_threshold` is applied where samples are mixed, not here.
    """

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        smoothing = plan.smoothing
        if plan.name == "cross_entropy" and plan.over == "all":
            labels = labels.to(logits.dtype) if labels.is_floating_point() else labels.long()
            return functional.cross_entropy(logits, labels, label_smoothing=smoothing)
        targets = _smoothed(labels, logits, smoothing, plan.over)
        if plan.name == "cross_entropy":
            return functional.cross_entropy(logits, targets)
        if plan.name == "bce":  # the mean over samples and classes, as timm's BinaryCrossEntropy
            return functional.binary_cross_entropy_with_logits(logits, targets)
        return _focal(logits, targets).sum(1).mean()

    return loss


def _smoothed(
    labels: torch.Tensor, logits: torch.Tensor, smoothing: float, over: str
) -> torch.Tensor:
    """Return labels as probabilities, smoothed over all classes or over all classes except the
    label's.
    """
    classes = logits.shape[1]
    targets = labels if labels.is_floating_point() else functional.one_hot(labels.long(), classes)
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
    p_t = p * targets + (1 - p) * (1 - targets)
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
    return alpha_t * (1 - p_t) ** gamma * entropy


_NORM_LAYERS = (torch.nn.modules.batchnorm._NormBase, torch.nn.GroupNorm, torch.nn.LayerNorm)


def decay_groups(
    module: torch.nn.Module, weight_decay: float, decay_all: bool = False
) -> list[dict[str, Any]]:
    """Return two torch.optim parameter groups.

    Biases and norm layers have no weight decay, except with `decay_all`.
    """
    undecayed = {
        id(parameter)
        for layer in module.modules()
        for leaf, parameter in layer.named_parameters(recurse=False)
        if isinstance(layer, _NORM_LAYERS)
        or "bias" in (leaf, leaf.split("_")[0], leaf.split("_")[-1])
    }
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in trained if decay_all or id(parameter) not in undecayed]
    rest = [parameter for parameter in trained if not decay_all and id(parameter) in undecayed]
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]


def recipe_optimizer(plan: OptimizerPlan, module: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the recipe's optimizer for a module.

    The learning rate is 1, so set "lr" before each step.
    """
    groups = decay_groups(module, plan.weight_decay, plan.decay_all)
    betas, eps = (plan.momentum, plan.beta2), plan.epsilon
    optimizers: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "sgd": lambda: torch.optim.SGD(
            groups, lr=1.0, momentum=plan.momentum, nesterov=plan.nesterov
        ),
        "adam": lambda: torch.optim.Adam(groups, lr=1.0, betas=betas, eps=eps or 1e-8),
        "adamw": lambda: torch.optim.AdamW(groups, lr=1.0, betas=betas, eps=eps or 1e-8),
        "lars": lambda: Lars(groups, plan.momentum, plan.trust_coefficient),
        "lamb": lambda: Lamb(groups, betas, eps or 1e-6),
    }
    return optimizers[plan.name]()


class Lars(torch.optim.Optimizer):
    """LARS (You et al., arXiv 1708.03888, algorithm 1).

    The local rate is 1 without weight decay or if a norm is 0.
    """

    def __init__(self, groups: Any, momentum: float, trust_coefficient: float) -> None:
        super().__init__(groups, {"lr": 1.0, "weight_decay": 0.0})
        self.momentum, self.trust_coefficient = momentum, trust_coefficient

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            decay = group["weight_decay"]
            for w in [parameter for parameter in group["params"] if parameter.grad is not None]:
                g = w.grad
                w_norm, g_norm = torch.linalg.vector_norm(w), torch.linalg.vector_norm(g)
                local = 1.0
                if decay and w_norm > 0 and g_norm > 0:
                    local = self.trust_coefficient * w_norm / (g_norm + decay * w_norm)
                v = self.state[w].setdefault("momentum_buffer", torch.zeros_like(w))
                v.mul_(self.momentum).add_(group["lr"] * local * (g + decay * w))
                w.sub_(v)


class Lamb(torch.optim.Optimizer):
    """The optimizer LAMB (You et al., arXiv 1904.00962, algorithm 2), with bias correction as in
    timm.

    The layer-wise ratio ‖w‖ / ‖r + decay · w‖ is 1 without weight decay, or if a norm is 0.
    """

    def __init__(self, groups: Any, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": 1.0, "weight_decay": 0.0})
        self.betas, self.eps = betas, eps

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Update every parameter that has a gradient."""
        beta1, beta2 = self.betas
        for group in self.param_groups:
            for w in [parameter for parameter in group["params"] if parameter.grad is not None]:
                state = self.state[w]
                if not state:
                    state.update(
                        step=0, exp_avg=torch.zeros_like(w), exp_avg_sq=torch.zeros_like(w)
                    )
                state["step"] += 1
                m, v = state["exp_avg"], state["exp_avg_sq"]
                m.mul_(beta1).add_(w.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(w.grad, w.grad, value=1 - beta2)
                m_hat, v_hat = m / (1 - beta1 ** state["step"]), v / (1 - beta2 ** state["step"])
                u = m_hat / (v_hat.sqrt() + self.eps) + group["weight_decay"] * w
                w_norm, u_norm = torch.linalg.vector_norm(w), torch.linalg.vector_norm(u)
                if group["weight_decay"] and w_norm > 0 and u_norm > 0:
                    u = u * (w_norm / u_norm)
                w.sub_(group["lr"] * u)


class Average(AveragedModel):
    """The recipe's moving average of a module's weights and statistics. The averaged net is the
    attribute `module`.

    As in torchvision's training script, the average moves every `plan.every` updates. In the first
    `plan.start` updates, the average is a copy of the weights.
    """

    def __init__(self, module: torch.nn.Module, plan: AveragePlan) -> None:
        super().__init__(module, multi_avg_fn=get_ema_multi_avg_fn(plan.decay), use_buffers=True)
        self.update_parameters(module)  # torch's first move is always a copy
        self._every, self._start = plan.every, plan.start
        self._updates = 0

    def update(self, module: torch.nn.Module) -> None:
        """Move the average. Call this after each update of the module."""
        self._updates += 1
        if self._updates <= self._start:
            self.n_averaged.fill_(0)  # so that the next move copies the weights
        elif self._updates % self._every:
            return
        self.update_parameters(module)
