"""A stand-in for what `mindspore.mint` lacks on a CPU (MindSpore 2.10 has no kernel for a third of
it there).

Only what the audit's nets call, by operations that have kernels and right gradients. It says
nothing about a card.
"""

import mindspore as ms
import numpy as np
import torch
from mindspore import Tensor, mint, ops
from mindspore.mint.nn import functional


def _pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    axes = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(axes, keep_dims=True)
    output = centred / ops.sqrt((centred * centred).mean(axes, keep_dims=True) + eps)
    output = output if weight is None else output * weight
    return output if bias is None else output + bias


def _channels(value, like):
    return value.reshape((1, -1) + (1,) * (like.ndim - 2))


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    grouped = input.reshape((input.shape[0], num_groups, -1))
    output = layer_norm(grouped, grouped.shape[2:], eps=eps).reshape(input.shape)
    return output if weight is None else output * _channels(weight, input) + _channels(bias, input)


def batch_norm(input, mean, variance, weight, bias, training, momentum=0.1, eps=1e-5):
    if training:
        axes, count = (0, *range(2, input.ndim)), input.size // input.shape[1]
        old = mean, variance
        mean = input.mean(axes)
        variance = ops.square(input - _channels(mean, input)).mean(axes)
        for one, new in zip(old, (mean, variance * (count / (count - 1))), strict=True):
            ops.assign(one, one * (1 - momentum) + ops.stop_gradient(new) * momentum)
    output = (input - _channels(mean, input)) / ops.sqrt(_channels(variance, input) + eps)
    return output * _channels(weight, input) + _channels(bias, input)


def embedding(input, weight, padding_idx=None):
    output = ops.gather(weight, input.astype(ms.int32), 0)
    if padding_idx is None:
        return output
    # the padding row has no gradient
    keeps = (input != padding_idx).astype(weight.dtype).expand_dims(-1)
    return output * keeps + ops.stop_gradient(output) * (1 - keeps)


def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    stride, dilation, size = _pair(stride), _pair(dilation), tuple(weight.shape[2:])
    if isinstance(padding, str):
        total = [d * (k - 1) * (padding == "same") for d, k in zip(dilation, size, strict=True)]
        pads = [side for one in total for side in (one // 2, one - one // 2)]
    else:
        pads = [one for one in _pair(padding) for _ in range(2)]
    output = ops.Conv2D(weight.shape[0], size, 1, "pad", tuple(pads), stride, dilation, groups)(
        input, weight
    )
    return output if bias is None else output + _channels(bias, output)


def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    sizes = [one if isinstance(one, str) else _pair(one)[-1] for one in (stride, padding, dilation)]
    stride, padding, dilation = (
        one if isinstance(one, str) else (first, one)
        for one, first in zip(sizes, (1, 0, 1), strict=True)
    )
    return conv2d(
        input.expand_dims(2), weight.expand_dims(2), bias, stride, padding, dilation, groups
    ).squeeze(2)


def conv_transpose2d(input, weight, bias=None, stride=1, padding=0):
    """Of windows that do not overlap: a product for each pixel."""
    channels, height, width = input.shape[1:]
    rows, columns = weight.shape[2:]
    assert (_pair(stride), _pair(padding)) == ((rows, columns), (0, 0)), (stride, padding)
    pixels = input.permute(0, 2, 3, 1).reshape(-1, channels)
    windows = ops.matmul(pixels, weight.reshape(channels, -1))
    windows = windows.reshape(-1, height, width, weight.shape[1], rows, columns)
    output = windows.permute(0, 3, 1, 4, 2, 5)
    output = output.reshape(-1, weight.shape[1], height * rows, width * columns)
    return output if bias is None else output + _channels(bias, output)


def topk(input, k, dim=-1):
    values, indices = ops.topk(input, k, dim)
    return values, indices.astype(ms.int64)


def max_pool2d(input, kernel_size, stride=None, padding=0):
    rows, columns = _pair(padding)
    padded = (
        ops.pad(input, (columns, columns, rows, rows), "constant", -3e38)
        if rows or columns
        else input
    )
    return ops.MaxPool(_pair(kernel_size), _pair(stride or kernel_size), "valid")(padded)


def avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    sizes, strides, pads = _pair(kernel_size), _pair(stride or kernel_size), _pair(padding)
    pool, more = ops.AvgPool(sizes, strides, "valid"), (0, 0)
    if ceil_mode:  # windows that begin inside are kept, and count what is inside
        lengths = [one + 2 * pad for one, pad in zip(input.shape[2:], pads, strict=True)]
        more = [
            (k - length) % step for length, k, step in zip(lengths, sizes, strides, strict=True)
        ]
    inside, outside = (pads[1], pads[1], pads[0], pads[0]), (0, more[1], 0, more[0])
    output = pool(ops.pad(ops.pad(input, inside), outside))
    if count_include_pad and not any(more):
        return output
    ones = ops.ones_like(input)
    counted = ops.pad(ones, inside, value=1.0 if count_include_pad else 0.0)
    return output / pool(ops.pad(counted, outside))


def adaptive_avg_pool(input, output_size):
    assert {output_size} <= {1, (1,), (1, 1)}, output_size
    return input.mean((-1,) if output_size == (1,) or input.ndim == 3 else (-2, -1), keep_dims=True)


def gelu(input, approximate="none"):
    if approximate == "tanh":
        return (
            0.5
            * input
            * (1 + ops.tanh(0.7978845608028654 * (input + 0.044715 * input * input * input)))
        )
    return input * 0.5 * (1 + ops.erf(input * 0.7071067811865476))


def softplus(input, beta=1, threshold=20):
    assert beta == 1, beta
    return ops.relu(input) + ops.log1p(ops.exp(-ops.abs(input)))


def dropout(input, p=0.5, training=True, inplace=False):
    return ops.dropout(input, p, True) if training and p else input


def softmax(input, dim=-1, dtype=None):
    return ops.softmax(input if dtype is None else input.astype(dtype), dim)


def pad(input, pad, mode="constant", value=0.0):
    return ops.pad(input, tuple(pad), mode, value if mode == "constant" else None)


def norm(input, p=2, dim=None, keepdim=False):
    assert p in ("fro", 2), p
    return ops.sqrt((input * input).sum(dim, keepdims=keepdim))


def normalize(input, p=2.0, dim=1, eps=1e-12):
    return input / ops.clamp(norm(input, p, dim, True), eps)


def arange(start=0, end=None, step=1, *, dtype=None):
    numbers = (0, start, step) if end is None else (start, end, step)
    values = np.arange(*[one.item() if isinstance(one, Tensor) else one for one in numbers])
    tensor = Tensor(values.astype(np.int64 if values.dtype.kind == "i" else np.float32))
    return tensor if dtype is None else tensor.astype(dtype)


def linspace(start, end, steps, *, dtype=None):
    return Tensor(np.linspace(start, end, steps, dtype=np.float32)).astype(dtype or ms.float32)


def full(size, fill_value, *, dtype=None):
    return ops.full(
        size, fill_value, dtype=dtype or (ms.int64 if isinstance(fill_value, int) else ms.float32)
    )


def cumsum(input, dim, dtype=None):
    whole = input.dtype in (ms.bool_, ms.int64)
    output = ops.cumsum(input.astype(ms.int32) if whole else input, dim)
    return output.astype(dtype or (ms.int64 if whole else input.dtype))


def roll(input, shifts, dims):
    for shift, dim in zip(
        np.atleast_1d(shifts).tolist(), np.atleast_1d(dims).tolist(), strict=True
    ):
        if shift := shift % input.shape[dim]:
            first, last = ops.split(input, (input.shape[dim] - shift, shift), dim)
            input = ops.cat((last, first), dim)
    return input


def einsum(equation, *operands):
    left, right = equation.replace(" ", "").split("->")
    terms = left.split(",")
    order = right + "".join(dict.fromkeys(letter for letter in left if letter not in f"{right},"))
    product = 1
    for term, operand in zip(terms, operands, strict=True):
        sizes = dict(zip(term, operand.shape, strict=True))
        placed = operand.transpose(
            tuple(sorted(range(len(term)), key=lambda i: order.index(term[i])))
        )
        product = product * placed.reshape(tuple(sizes.get(letter, 1) for letter in order))
    summed = tuple(range(len(right), len(order)))
    return product.sum(summed) if summed else product


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    axes = (-2, -1)[4 - input.ndim :]
    if size is None:
        size = [int(input.shape[axis] * scale_factor) for axis in axes]
    counts = (size,) * len(axes) if isinstance(size, int) else size
    mode = "bilinear" if mode == "linear" else mode
    # a matrix along each axis: what torch makes of an identity
    for axis, count in zip(axes, counts, strict=True):
        eye = torch.eye(input.shape[axis])[None, None]
        matrix = torch.nn.functional.interpolate(
            eye, (eye.shape[-2], count), mode=mode, align_corners=align_corners
        )
        moved = input.swapaxes(axis, -1)
        input = ops.matmul(moved, Tensor(matrix[0, 0].numpy())).swapaxes(axis, -1)
    return input


def rms_norm(input, gamma, epsilon=1e-6):
    inverse = ops.rsqrt((input * input).mean(-1, keep_dims=True) + epsilon)
    return input * inverse * gamma, inverse


class FlashAttentionScore:
    """The fourth output of the operation, which has a kernel on a card alone: rounded once, to the
    type of its inputs.
    """

    def __init__(self, head_num, keep_prob=1.0, scale_value=1.0, input_layout="BSH"):
        assert (keep_prob, input_layout) == (1.0, "BNSD"), (keep_prob, input_layout)
        self.scale = scale_value

    def __call__(self, query, key, value, shift, dropped, padding, mask):
        scores = ops.matmul(_single(query) * self.scale, _single(key).swapaxes(-2, -1))
        if mask is not None:
            scores = ops.masked_fill(scores, mask, -1e30)
        output = ops.matmul(ops.softmax(scores), _single(value))
        return None, None, None, output.astype(query.dtype)


def _single(tensor):
    return tensor.astype(ms.float32)


def exp(input):
    # MindSpore's is 5e-6 off (mindspore_bugs.py): too much before the sine of a large angle
    return ops.exp(input.astype(ms.float64)).astype(input.dtype)


def _random(draw):
    def drawn(*size, dtype=None, **_):
        size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        return Tensor(draw(size=tuple(size)).astype(np.float32)).astype(dtype or ms.float32)

    return drawn


def _like(make):
    return lambda input, *values, dtype=None: make(input, *values, dtype=dtype)


_FUNCTIONAL = {
    **{
        one.__name__: one
        for one in (layer_norm, group_norm, batch_norm, embedding, conv2d, conv1d, max_pool2d, gelu)
    },
    **{
        one.__name__: one
        for one in (avg_pool2d, dropout, softmax, softplus, pad, normalize, interpolate)
    },
    "adaptive_avg_pool2d": adaptive_avg_pool,
    "adaptive_avg_pool1d": adaptive_avg_pool,
    "relu6": lambda input, inplace=False: ops.relu6(input),
    "relu": lambda input, inplace=False: ops.relu(input),
    "relu_": ops.relu,
    "leaky_relu": lambda input, negative_slope=0.01, inplace=False: ops.leaky_relu(
        input, negative_slope
    ),
}
_MINT = {
    **{one.__name__: one for one in (softmax, norm, arange, linspace, full, cumsum, roll, einsum)},
    "exp": exp,
    "topk": topk,
    "zeros_like": _like(ops.zeros_like),
    "ones_like": _like(ops.ones_like),
    "full_like": _like(ops.full_like),
    "randn": _random(np.random.normal),
    "rand": _random(np.random.uniform),
    # mint's has no gradient (mindspore_bugs.py)
    "unbind": lambda input, dim=0: tuple(one.squeeze(dim) for one in ops.split(input, 1, dim)),
    "stack": lambda tensors, dim=0: ops.stack(tuple(tensors), dim),
    # mint's has a wrong gradient (bugs.py)
    "split": lambda tensor, size, dim=0: ops.split(tensor, size, dim),
    "tril": lambda input, diagonal=0: ops.tril(input, diagonal),
    "repeat_interleave": lambda input, repeats, dim=None, **_: ops.repeat_interleave(
        input, repeats, dim
    ),
    "argmax": lambda input, dim=None, keepdim=False: ops.argmax(input, dim, keepdim).astype(
        ms.int64
    ),
    "mm": lambda input, other: ops.matmul(input, other),
    "addmm": lambda input, a, b: input + ops.matmul(a, b),
    "log2": lambda input: ops.log(input) / 0.6931471805599453,
    "bitwise_xor": ops.logical_xor,
    "outer": lambda input, vec2: input[:, None] * vec2[None],
}
_LAYERS = {
    "LayerNorm": lambda c, x: layer_norm(x, c.normalized_shape, c.weight, c.bias, c.eps),
    "GroupNorm": lambda c, x: group_norm(x, c.num_groups, c.weight, c.bias, c.eps),
    "BatchNorm2d": lambda c, x: batch_norm(
        x, c.running_mean, c.running_var, c.weight, c.bias, c.training, c.momentum, c.eps
    ),
    "Embedding": lambda c, x: embedding(x, c.weight, c.padding_idx),
    "Conv2d": lambda c, x: conv2d(x, c.weight, c.bias, c.stride, c.padding, c.dilation, c.groups),
    "Conv1d": lambda c, x: conv1d(x, c.weight, c.bias, c.stride, c.padding, c.dilation, c.groups),
    "ConvTranspose2d": lambda c, x: conv_transpose2d(x, c.weight, c.bias, c.stride, c.padding),
    "MaxPool2d": lambda c, x: max_pool2d(x, c.kernel_size, c.stride, c.padding),
    "AvgPool2d": lambda c, x: avg_pool2d(
        x, c.kernel_size, c.stride, c.padding, c.ceil_mode, c.count_include_pad
    ),
    "AdaptiveAvgPool2d": lambda c, x: adaptive_avg_pool(x, c.output_size),
    "AdaptiveAvgPool1d": lambda c, x: adaptive_avg_pool(x, c.output_size),
    "Dropout": lambda c, x: dropout(x, c.p, c.training),
    "GELU": lambda c, x: gelu(x, c.approximate),
    "ReLU6": lambda c, x: ops.relu6(x),
}


def _write(tensor, values):
    """Write in place; a row of a Parameter (`weight[padding_idx].zero_()`) into the Parameter."""
    new = Tensor(np.broadcast_to(values, tensor.shape).astype(np.float32)).astype(tensor.dtype)
    whole, index = getattr(tensor, "row_of", (tensor, ...))
    array = whole.asnumpy().copy()
    array[index] = new.asnumpy()
    (whole.set_data if isinstance(whole, ms.Parameter) else whole.assign_value)(
        Tensor(array, whole.dtype)
    )
    return tensor


def _strided(given):
    """`x[:, ::2]` by gathering rows: the gradient of MindSpore's own fails on a CPU
    (mindspore_bugs.py).
    """

    def item(self, key):
        keys = key if isinstance(key, tuple) else (key,)
        steps = [
            axis
            for axis, one in enumerate(keys)
            if isinstance(one, slice) and one.step not in (None, 1)
        ]
        if not steps or not all(isinstance(one, slice) for one in keys):
            return given(self, key)
        for axis in steps:
            rows = np.arange(self.shape[axis])[keys[axis]].astype(np.int32)
            self = ops.gather(self, Tensor(rows), axis)
        return given(
            self, tuple(slice(None) if axis in steps else one for axis, one in enumerate(keys))
        )

    return item


def _construct(function):
    return lambda self, input: function(self, input)


def install():
    """Replace them in MindSpore; before mindone is imported, which binds some by name."""
    for place, functions in ((functional, _FUNCTIONAL), (mint, _MINT)):
        for name, function in functions.items():
            setattr(place, name, function)
    for name, function in _LAYERS.items():
        getattr(mint.nn, name).construct = _construct(function)
    ops.rms_norm, ops.roll, Tensor.roll = rms_norm, roll, roll
    ops.operations.nn_ops.FlashAttentionScore = FlashAttentionScore
    Tensor.repeat_interleave = _MINT["repeat_interleave"]
    # mindone was written for MindSpore 2.6, in which `data` was no copy: `zeros_(layer.bias.data)`
    # fills the bias.
    ms.Parameter.data = property(lambda self: self)
    row = ms.Parameter.__getitem__
    Tensor.__getitem__ = _strided(Tensor.__getitem__)

    def item(self, index):
        one = row(self, index)
        one.row_of = self, index
        return one

    ms.Parameter.__getitem__ = item
    made = mint.nn.Conv2d.__init__

    def init(self, *given, **named):
        made(self, *given, **named)
        self.conv2d = conv2d  # which mindone's Conv1d calls

    mint.nn.Conv2d.__init__ = init
    draw = np.random
    Tensor.normal_ = lambda self, mean=0.0, std=1.0, **_: _write(
        self, draw.normal(mean, std, self.shape)
    )
    Tensor.uniform_ = lambda self, low=0.0, high=1.0, **_: _write(
        self, draw.uniform(low, high, self.shape)
    )
    Tensor.zero_ = lambda self: _write(self, 0.0)
    Tensor.fill_ = lambda self, value: _write(self, value)
    Tensor.floor_ = lambda self: _write(self, np.floor(self.asnumpy()))
    Tensor.clone = lambda self: ops.logical_or(self, self) if self.dtype == ms.bool_ else self * 1
    Tensor.repeat = lambda self, *sizes: ops.tile(
        self, sizes[0] if isinstance(sizes[0], tuple | list) else sizes
    )
