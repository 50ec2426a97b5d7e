"""Functions whose MindSpore kernels are inaccurate on a CPU, and what that changes.

exp, log, tanh, sigmoid, softplus, elu, softmax and log_softmax are up to 4e-5 off in float32, and
softplus of negative numbers is further off; so are expm1 and log1p of numbers near 0. That is not
the port's fault. A net or a loss runs once more with NumPy's float64 in place of each of these
kernels, or with MindSpore's if gradients are needed; how far its results move is what its kernels
are off by.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, ops
from mindspore.ops.auto_generate import gen_ops_prim, pyboost_inner_prim

from resnet_fn.parity.record.mindspore_cell import run_in
from resnet_fn.parity.trace.difference import errors_of_parts, norm

_Exact = Callable[..., np.ndarray]

_MOST = 1e-3  # with a larger relative error, the kernel computes something else


def _is_close(result: np.ndarray, exact: np.ndarray) -> bool:
    """Return whether a kernel computes this function, by the norm of all numbers.

    Numbers near 0, of which a kernel has few right digits, are not taken apart: where they are most
    of a result, the kernel would seem to compute something else.
    """
    error, _ = errors_of_parts(result, exact, None)
    return error <= _MOST


# Functions whose kernels go through a number near 1 where x is near 0. In float32, this number is
# off by up to `_UNIT` of itself, of which the result may have few right digits.
_NEAR_1 = {np.expm1, np.log1p}
_UNIT = 2.0**-24


def _is_kernel_of(function: _Exact | None, result: Tensor, exact: Tensor, x: Tensor) -> bool:
    """Return whether a kernel's result for x is that of a function, as far as float32 shows it."""
    ours, right = result.numpy(), exact.numpy()
    is_close = _is_close(ours, right)
    if is_close or function not in _NEAR_1:
        return is_close
    with np.errstate(all="ignore"):
        return norm(ours - right) <= _UNIT * norm(1 + x.numpy())


def _softplus(x: np.ndarray, beta: float = 1.0, threshold: float = 20.0) -> np.ndarray:
    scaled = x * beta
    return np.where(scaled > threshold, x, np.logaddexp(0.0, scaled) / beta)


def _plain_softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -x))


def _elu(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0)))


def _softmax(x: np.ndarray, axis: Any) -> np.ndarray:
    return np.exp(_log_softmax(x, axis))


def _log_softmax(x: np.ndarray, axis: Any) -> np.ndarray:
    shifted = x - x.max(axis, keepdims=True)
    total: np.ndarray = np.exp(shifted).sum(axis, keepdims=True)
    return shifted - np.log(total)


_FUNCTIONS: dict[str, _Exact] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
}

# classes of operations → their functions; ops.softmax and ops.log_softmax call those with "Prim"
_OPERATIONS: dict[str, _Exact] = {
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Log": np.log,
    "Log1p": np.log1p,
    "Tanh": np.tanh,
    "Sigmoid": _sigmoid,
    "Softplus": _plain_softplus,
    "SoftplusExt": _softplus,
    "Elu": _elu,
    "EluExt": _elu,
    "Softmax": _softmax,
    "_PyboostSoftmaxPrim": _softmax,
    "LogSoftmax": _log_softmax,
    "_PyboostLogSoftmaxPrim": _log_softmax,
}

# functions → the attributes of their operations that they need, unless calls have them
_ATTRIBUTES: dict[_Exact, Sequence[str]] = {
    _elu: ["alpha"],
    _softmax: ["axis"],
    _log_softmax: ["axis"],
}


def _settings(exact: _Exact, operation: Any, settings: Sequence[Any]) -> Sequence[Any]:
    """Return what a function needs beside its tensor."""
    return settings or [getattr(operation, name) for name in _ATTRIBUTES.get(exact, ())]


# MindSpore's kernel adds this to what it takes the logarithm of; PyTorch's logarithms end at −100.
_ADDED, _LOWEST = 1e-12, -100.0


def _cross_entropy(p: np.ndarray, y: np.ndarray, added: float) -> np.ndarray:
    """Return the binary cross-entropy of each probability."""
    with np.errstate(divide="ignore"):
        of_one = np.log(p + added)
        of_zero = np.log(1 - p + added)
    of_one = np.maximum(of_one, _LOWEST)
    of_zero = np.maximum(of_zero, _LOWEST)
    total: np.ndarray = y * of_one + (1 - y) * of_zero
    return -total


def _without_limit(result: np.ndarray, p: np.ndarray, y: np.ndarray) -> np.ndarray | None:
    """Return PyTorch's binary cross-entropy, if `result` is what MindSpore's kernel is known for.

    It is about log(1e-12) where PyTorch's is log(0), and a mean or sum of a single number is twice
    that number.
    """
    of_kernel = _cross_entropy(p, y, _ADDED)
    exact = _cross_entropy(p, y, 0.0)
    twice = 2 if p.size == 1 else 1
    ways = (
        (np.asarray, 1),
        (np.mean, twice),
        (np.sum, twice),
    )
    for reduced, factor in ways:
        known = factor * reduced(of_kernel)
        if known.shape != result.shape:
            continue
        if _is_close(result, known):
            return np.asarray(reduced(exact), result.dtype)
    return None


def _without_limits(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the call of `BinaryCrossEntropy` with PyTorch's limit, where there are no weights."""

    def replaced(operation: Any, p: Tensor, y: Tensor, weight: Any = None) -> Tensor:
        result = kernel(operation, p, y, weight)
        if weight is not None:
            return result
        arrays = (tensor.numpy().astype(np.float64) for tensor in (p, y))
        exact = _without_limit(result.numpy(), *arrays)
        return result if exact is None else Tensor(exact)

    return replaced


@contextlib.contextmanager
def exact_kernels(limits: bool) -> Iterator[Callable[[], int]]:
    """Compute these functions in float64 by NumPy inside a `with` block, uncompiled.

    With `limits`, binary cross-entropies of probabilities have PyTorch's limit, too. Yields a
    function that counts the calls so far. There is no gradient.
    """
    count = 0

    def call(exact: _Exact, result: Tensor, x: Any, *further: Any) -> Tensor:
        nonlocal count
        count += 1
        array = x.numpy()
        with np.errstate(all="ignore"):  # log(0) is −inf in the kernel, too
            exactly = Tensor(exact(array.astype(np.float64), *further).astype(array.dtype))
        return exactly if _is_kernel_of(exact, result, exactly, x) else result

    def of_operation(exact: _Exact, kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def replaced(operation: Any, x: Any, *further: Any) -> Tensor:
            settings = _settings(exact, operation, further)
            return call(exact, kernel(operation, x, *further), x, *settings)

        return replaced

    def of_tensor(exact: _Exact, kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x: call(exact, kernel(x), x)

    def counted(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def replaced(*arguments: Any, **options: Any) -> Tensor:
            nonlocal count
            count += 1
            return _without_limits(kernel)(*arguments, **options)

        return replaced

    with contextlib.ExitStack() as changes:
        changes.enter_context(run_in("pynative"))
        for kind, exact in _operations():
            changes.enter_context(_attribute(kind, "__call__", of_operation(exact, kind.__call__)))
        for name, exact in _FUNCTIONS.items():
            changes.enter_context(_attribute(Tensor, name, of_tensor(exact, getattr(Tensor, name))))
        if limits:
            kind = ops.BinaryCrossEntropy
            changes.enter_context(_attribute(kind, "__call__", counted(kind.__call__)))
        yield lambda: count


def _wide_log_softmax(x: Tensor, axis: int) -> Tensor:
    """Return log_softmax in float64. MindSpore's kernel computes it in float32 even there."""
    largest = ops.ReduceMax(keep_dims=True)(x, axis)
    shifted = x - ops.stop_gradient(largest)
    return shifted - ops.log(ops.exp(shifted).sum(axis, keepdims=True))


@contextlib.contextmanager
def exact_gradients() -> Iterator[None]:
    """Compute these functions and their gradients by MindSpore's float64 kernels, which are
    accurate, inside a `with` block, uncompiled.
    """

    def of_kernel(
        kernel: Callable[..., Tensor], at: int, exact: Any = None
    ) -> Callable[..., Tensor]:
        def replaced(*arguments: Any) -> Tensor:
            result = kernel(*arguments)
            if arguments[at].dtype != mindspore.float32:
                return result
            wide = arguments[at].astype(mindspore.float64)
            if exact is _log_softmax:
                exactly = _wide_log_softmax(
                    wide, *_settings(exact, arguments[0], arguments[at + 1 :])
                )
            else:
                exactly = kernel(*arguments[:at], wide, *arguments[at + 1 :])
            exactly = exactly.astype(mindspore.float32)
            return exactly if _is_kernel_of(exact, result, exactly, arguments[at]) else result

        return replaced

    with contextlib.ExitStack() as changes:
        changes.enter_context(run_in("pynative"))
        for kind, exact in _operations():
            changes.enter_context(_attribute(kind, "__call__", of_kernel(kind.__call__, 1, exact)))
        for name, exact in _FUNCTIONS.items():
            kernel = of_kernel(getattr(Tensor, name), 0, exact)
            changes.enter_context(_attribute(Tensor, name, kernel))
        yield


def _operations() -> Iterator[tuple[Any, _Exact]]:
    """Yield the classes of operations with their functions. An older MindSpore lacks some."""
    for name, exact in _OPERATIONS.items():
        modules = (gen_ops_prim, pyboost_inner_prim, ops)
        kinds = [vars(module)[name] for module in modules if name in vars(module)]
        if kinds:
            yield kinds[0], exact


@contextlib.contextmanager
def _attribute(owner: type, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a class inside a `with` block."""
    own = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
