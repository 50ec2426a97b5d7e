"""Known faults of MindSpore's kernels on a CPU: a right port that uses one differs from PyTorch.

What an uncompiled operation has is measured in this process, so that no line is printed where a
version, a device or a patch has put it right. What only compiled functions have is known by
version, because its test may never end; an uncompiled run of the net decides there.
"""

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops

from resnet_fn.parity.record.common import is_of_user
from resnet_fn.parity.trace.source import KernelFault

_SEEN = 1e-3  # what is further off is no rounding


_BCE = r"\bbinary_cross_entropy\(|\b(nn\.BCELoss|BinaryCrossEntropy)\("


class _Known(NamedTuple):
    """A fault, with the versions in which it was seen."""

    what: str
    versions: tuple[str, ...]
    used: str  # a pattern for the source of a net that may use the operation
    error: Callable[[], float]  # returns how far a right answer is off
    compiled: bool = False  # whether only compiled functions have it


def kernel_faults(users: Iterable[Any]) -> list[KernelFault]:
    """Return the faults that this process has, of operations that cells or functions may use."""
    text, version = _source(users), mindspore.__version__
    used = [known for known in FAULTS if re.search(known.used, text)]
    faults = [
        KernelFault(f"MindSpore {version}: {known.what} is wrong", True)
        for known in used
        if known.compiled and version.startswith(known.versions)
    ]
    for known in (entry for entry in used if not entry.compiled):
        with contextlib.suppress(Exception):  # no kernel
            error = known.error()
            if error > _SEEN or np.isnan(error):
                fault = f"MindSpore {version}: {known.what} is {error:.2g} off"
                faults.append(KernelFault(fault, False))
    return faults


def _source(users: Iterable[Any]) -> str:
    """Return the names of all classes, and the text of the user's files in which the users are
    defined, and of those that these files import.
    """
    files, names = set[str](), set[str]()
    for user in users:
        names.add(f"nn.{type(user).__name__}(")
        code = user.construct if isinstance(user, nn.Cell) else user
        code = inspect.unwrap(getattr(code, "__func__", code))
        if isinstance(code, FunctionType):
            files.add(code.__code__.co_filename)
            files.update(_file(value) for value in code.__globals__.values())
    texts = [
        Path(file).read_text(encoding="utf-8", errors="replace")
        for file in sorted(files)
        if file.endswith(".py") and is_of_user(file)
    ]
    return "\n".join([*sorted(names), *texts])


def _file(value: Any) -> str:
    if isinstance(value, ModuleType):
        return getattr(value, "__file__", None) or ""
    code = getattr(value, "__code__", None) or getattr(value, "construct", None)
    code = getattr(code, "__code__", code)
    return getattr(code, "co_filename", "")


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _gradient_error(
    function: Callable[[Tensor], Tensor], x: np.ndarray, right: np.ndarray
) -> float:
    """Return how far the gradient of a function's sum is off."""
    gradient = mindspore.grad(lambda tensor: function(tensor).sum())(Tensor(x))
    return float(np.abs(gradient.numpy() - right).max())


def _padded() -> float:
    x, w = _numbers(2, 3), _numbers(2, 5)

    def weighted(x: Tensor, w: Tensor) -> Tensor:
        return (ops.pad(x, (1, 1)) * w).sum()

    gradient = mindspore.jit(mindspore.grad(weighted))
    gradient(Tensor(x), Tensor(w)).numpy()
    return float(np.abs(gradient(Tensor(x), Tensor(w)).numpy() - w[:, 1:4]).max())


def _selu() -> float:
    scale = 1.0507009873554805
    alpha = 1.6732632423543772
    x = np.array([-1.0], np.float32)
    right = scale * alpha * np.exp(x)
    return _gradient_error(ops.selu, x, right)


def _split() -> float:
    w = _numbers(4, 3, 2)
    right = np.zeros((2, 6, 4))
    right[:, 3:] = w.transpose(2, 1, 0)
    taken = lambda x: mint.split(x, 3, 1)[1].permute(2, 1, 0) * Tensor(w)  # noqa: E731
    return _gradient_error(taken, _numbers(2, 6, 4), right)


def _bicubic() -> float:
    picture = np.zeros((1, 1, 8, 8), np.float32)
    picture[..., 4] = 1
    larger = ops.interpolate(Tensor(picture), size=(16, 16), mode="bicubic").numpy()
    weight = 1.25 * 0.25**3 - 2.25 * 0.25**2 + 1  # torch's kernel at a distance of 0.25 pixels
    return float(abs(larger[0, 0, 8, 8] - weight))


def _sgd() -> float:
    weight = Parameter(Tensor(np.ones(2, np.float32)), name="weight")
    mint.optim.SGD([weight], lr=0.1)((Tensor(np.ones(2, np.float32)),))
    return float(np.abs(weight.numpy() - 0.9).max())


def _nesterov() -> float:
    weight = Parameter(Tensor(np.ones(2, np.float32)), name="weight")
    optimizer = nn.Momentum([weight], 0.1, 0.5, use_nesterov=True)
    optimizer((Tensor(np.ones(2, np.float32)),))
    return float(np.abs(weight.numpy() - 0.85).max())


AXES = [2, 3, 4, 5]  # the numbers of axes of a net's softmax, as far as they are tried


def _weighted_softmax(w: Tensor, x: Tensor) -> Tensor:
    return ops.softmax(x, -1) * w


def softmax_now() -> float:
    """Return how far the gradient of a softmax is off now, which depends on earlier ones."""
    errors = []
    for axes in AXES:
        x, w = _numbers(*[2] * axes), _numbers(*[2] * axes)
        y = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        right = y * (w - (w * y).sum(-1, keepdims=True))
        weighted = partial(_weighted_softmax, Tensor(w))
        with contextlib.suppress(Exception):  # no kernel for so many axes
            errors.append(_gradient_error(weighted, x, right))
    return float(np.max(errors, initial=0.0))


def _one_cross_entropy() -> float:
    p, y = np.array([0.5], np.float32), np.array([1.0], np.float32)
    loss = ops.binary_cross_entropy(Tensor(p), Tensor(y))
    return float(abs(loss.numpy() - np.log(2)))


def _cross_entropy_of_zero() -> float:
    p, y = np.array([0, 0.5], np.float32), np.array([1, 1], np.float32)
    loss = ops.binary_cross_entropy(Tensor(p), Tensor(y), reduction="none")
    return float(abs(loss.numpy()[0] - 100))


FAULTS = (
    _Known(
        "in graph mode, from the second call on, the gradient of ops.pad",
        ("2.10.",),
        r"\bpad\(|\bnn\.(Zero|Constant)Pad",
        _padded,
        compiled=True,
    ),
    _Known("the gradient of ops.selu at −1", ("2.10.",), r"(?i)\bselu\b", _selu),
    _Known(
        "uncompiled, the gradient of mint.split(…)[1].permute(…)",
        ("2.10.",),
        r"\bmint\.split\(",
        _split,
    ),
    _Known("ops.interpolate(mode='bicubic')", ("2.10.",), r"bicubic", _bicubic),
    _Known(
        "the mean of ops.binary_cross_entropy of 1 number", ("2.10.",), _BCE, _one_cross_entropy
    ),
    _Known(
        "ops.binary_cross_entropy of the probability 0, which PyTorch computes as 100,",
        ("2.10.",),
        _BCE,
        _cross_entropy_of_zero,
    ),
    _Known(
        "uncompiled, because of an earlier softmax over 1 number, the gradient of softmax",
        ("2.10.",),
        r"(?i)softmax|attention",
        softmax_now,
    ),
    _Known("an update of mint.optim.SGD", ("2.10.",), r"\bmint\.optim\b", _sgd),
    _Known("an update of nn.Momentum(use_nesterov=True)", ("2.10.",), r"use_nesterov", _nesterov),
)
