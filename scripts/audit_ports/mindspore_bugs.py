"""Faults of MindSpore 2.10.0 on a CPU, each beside what is right; prints the table of
docs/audit.md.
"""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, mint, ops


def array(*shape):
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def largest(a, b):
    return f"{np.abs(a.asnumpy() - b.asnumpy()).max():.1g} off"


def split_and_permuted():
    x, w = array(2, 6, 4), array(4, 3, 2)

    def taken(split):
        return lambda x: (split(x, 3, 1)[1].permute(2, 1, 0) * w).sum()

    return largest(ms.grad(taken(mint.split))(x), ms.grad(taken(ops.split))(x))


def padded_twice():
    x, w = array(2, 3), array(2, 5)

    def padded(x):
        return (ops.pad(x, (1, 1)) * w).sum()

    gradient = ms.jit(ms.grad(padded))
    gradient(x).asnumpy()
    return largest(gradient(x), w[:, 1:4])


def selu():
    x = Tensor(np.array([-1.0], np.float32))
    exact = Tensor(np.array([1.0507009873554805 * 1.6732632423543772 * np.exp(-1.0)], np.float32))
    return largest(ms.grad(lambda x: ops.selu(x).sum())(x), exact)


def softmax_after_one_number():
    def gradient(x, w):
        return ms.grad(lambda x: (ops.softmax(x, -1) * w).sum())(x)

    gradient(array(2, 1), array(2, 1))
    x, w = array(8, 3), array(8, 3)[::-1]
    y = ops.softmax(x, -1)
    return largest(gradient(x, w), y * (w - (w * y).sum(-1, keepdims=True)))


def cross_entropy_of_one():
    p = Tensor([0.5], ms.float32)
    return largest(ops.binary_cross_entropy(p, ops.ones_like(p)), Tensor([np.log(2)], ms.float32))


def cross_entropy_of_zero():
    p = Tensor([0, 0], ms.float32)
    return largest(ops.binary_cross_entropy(p, ops.ones_like(p)), Tensor([100], ms.float32))


def strided():
    x = array(2, 5, 3, 3)
    right = np.zeros(x.shape, np.float32)
    right[:, ::2] = 1
    try:
        return largest(ms.grad(lambda x: x[:, ::2].sum())(x), Tensor(right))
    except (RuntimeError, ValueError) as error:
        return str(error).strip().splitlines()[0]


def tanh():
    x = np.linspace(4.7, 5, 31, dtype=np.float32)
    return largest(ops.tanh(Tensor(x)), Tensor(np.tanh(x.astype(np.float64)).astype(np.float32)))


def exp():
    x = np.linspace(-10, 10, 4001, dtype=np.float32)
    exact = Tensor(np.exp(x.astype(np.float64)).astype(np.float32))
    return largest(ops.exp(Tensor(x)) / exact, ops.ones_like(exact))


def unbound():
    try:
        return largest(ms.grad(lambda x: mint.unbind(x, -1)[0].sum())(array(4, 1)), Tensor([1.0]))
    except RuntimeError as error:
        return f"an error: {str(error).strip().splitlines()[0]}"


def data():
    p = Parameter(array(2), name="p")
    p.data.assign_value(Tensor(np.zeros(2, np.float32)))
    return "unchanged" if p.asnumpy().any() else "filled"


FAULTS = {
    "the gradient of `mint.split(x, 3, 1)[1].permute(2, 1, 0)`, not compiled": split_and_permuted,
    "the gradient of `ops.pad(x, (1, 1))` in a compiled function, second call": padded_twice,
    "the gradient of `ops.selu` at −1, not compiled": selu,
    "the gradient of `ops.softmax` of [8, 3] after that of [2, 1], not compiled": softmax_after_one_number,
    "`ops.binary_cross_entropy` of 1 number": cross_entropy_of_one,
    "`ops.binary_cross_entropy` of the probability 0, which PyTorch computes as 100": (
        cross_entropy_of_zero
    ),
    "the gradient of `x[:, ::2]`": strided,
    "`ops.tanh` between 4.7 and 5": tanh,
    "`ops.exp` between −10 and 10, as a part of it": exp,
    "the gradient of `mint.unbind(x, -1)[0]`": unbound,
    "a Parameter after `p.data.assign_value(zeros)`, which filled it in 2.6": data,
}

if __name__ == "__main__":
    for words, fault in FAULTS.items():
        print(f"| {words} | {fault()} |")
