"""Whether a port is right, found out without the ladder: nothing of it is imported here, nor
anything by it.

- Names: a parameter's path is the same on both sides, but for MindSpore's word for it (`_RENAMED`);
  shapes are equal, but for axes of 1. What is left without a partner on either side is wrong, and
  what trains on one side alone.
- Weights: the reference's, + 0.05 · N(0, 1), in both. No dropout. One batch, in evaluation and in
  training mode.
- Logits, loss, every gradient and, after one training pass, every statistic (no counter of batches)
  are compared with the reference in float64. Allowed are 1e-4 of an array's norm, 16 × what the
  reference's own float32 is off, and for a gradient 2⁻²³ of the norm of all. If that float32 is
  1e-3 off in the logits, float64 is another function (a mask of float32's minimum, which absorbs in
  float32 what it is added to): then the reference's float32 is what is compared with, by 1e-4.
- Initial values of two builds with two seeds: what repeats on both sides is equal to 1e-5 of the
  array's largest; what repeats on one side alone is wrong; of the rest mean, deviation and, of
  1,000 numbers, the fourth moment are within six standard errors.
"""

import copy
import re
import sys

import adapter
import mindspore
import mint_cpu
import numpy as np
import torch
from mindspore import Tensor, ops

_NORMED = "parametrizations.weight.original"  # torch's weight norm
_RENAMED = (("embedding_table", "weight"), ("gamma", "weight"), ("beta", "bias"))
_RENAMED += (
    ("moving_mean", "running_mean"),
    ("moving_variance", "running_var"),
    ("weight_norm_cell.", ""),
)
_RENAMED += (("weight_g", f"{_NORMED}0"), ("weight_v", f"{_NORMED}1"))
_DERIVED = ("weight_norm_cell.weight",)  # computed of others in each call, no parameter of its own
_BOUND, _TIMES, _OTHER, _UNIT = 1e-4, 16, 1e-3, 2.0**-23


def _pairs(net, module, renamed=()):
    """(the reference's name → its tensor and our Parameter; names without a partner)."""
    theirs = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers()),
    }
    paired, alone = {}, []
    for name, parameter in net.parameters_and_names(expand=True):
        candidates = [name]
        for ours, other in renamed:
            candidates = [re.sub(ours, other, one) for one in candidates]
        for ours, other in _RENAMED:
            candidates += [one.replace(ours, other) for one in candidates]
        there = next((one for one in candidates if one in theirs), None)
        if there and _shape(theirs[there]) == _shape(parameter):
            paired[there] = theirs[there], parameter
        elif not name.endswith(_DERIVED):
            alone.append(name)
    ids = {id(tensor) for tensor, _ in paired.values()}
    alone += [name for name, parameter in module.named_parameters() if id(parameter) not in ids]
    return paired, alone


def _shape(array):
    return [size for size in array.shape if size != 1]


def _array(tensor):
    return tensor.detach().double().numpy()


def _theirs(module, inputs, labels, dtype, train):
    """{"logits", "loss", "gradient of …", "… after a pass": array} of a copy of a module in a
    dtype.
    """
    module = copy.deepcopy(module).to(dtype).train(train)
    torch.set_default_dtype(dtype)
    try:
        logits = module(
            *[torch.from_numpy(x).to(dtype if x.dtype.kind == "f" else None) for x in inputs]
        )
        value = adapter.loss(logits, torch.from_numpy(labels))
        value.backward()
    finally:
        torch.set_default_dtype(torch.float32)
    found = {"logits": _array(logits), "loss": _array(value)}
    for name, one in module.named_parameters(remove_duplicate=False):
        found[f"gradient of {name}"] = np.zeros(one.shape) if one.grad is None else _array(one.grad)
    moved = [one for one in module.named_buffers() if train and one[1].is_floating_point()]
    return found | {f"{name} after a pass": _array(one) for name, one in moved}


def _ours(net, paired, inputs, labels, train):
    """The same of our net, by the reference's names; a statistic that the pass changes is put
    back.
    """
    net.set_train(train)

    def forward(*tensors):
        logits = net(*tensors)
        return adapter.loss(logits, Tensor(labels)), logits

    before = {name: parameter.asnumpy().copy() for name, (_, parameter) in paired.items()}
    trained = {id(parameter): name for name, (_, parameter) in paired.items()}
    parameters = net.trainable_params()
    differentiate = mindspore.value_and_grad(forward, None, parameters, has_aux=True)
    (value, logits), gradients = differentiate(*map(Tensor, inputs))
    found = {"logits": logits.asnumpy(), "loss": value.asnumpy()}
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if id(parameter) in trained:
            found[f"gradient of {trained[id(parameter)]}"] = gradient.asnumpy()
    for name, (_, parameter) in paired.items() if train else ():
        found[f"{name} after a pass"] = parameter.asnumpy().copy()
        parameter.set_data(Tensor(before[name]))
    return found


def check(name, **changes):
    """What is computed otherwise by a port, in words; [] if nothing is.

    `changes`: of `adapter.build`.
    """
    net, module = adapter.build(name, dropout=False, **changes)
    rng = np.random.default_rng(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += torch.from_numpy(
                rng.normal(0, 0.05, tuple(parameter.shape)).astype(np.float32)
            )
            parameter *= adapter.factor_of(name)
    paired, alone = _pairs(net, module, adapter.renamed(name))
    wrong = [f"without a partner: {', '.join(alone[:3])}"] if alone else []
    for there, (tensor, parameter) in paired.items():
        parameter.set_data(
            Tensor(tensor.detach().numpy().reshape(parameter.shape)).astype(parameter.dtype)
        )
        if tensor.requires_grad != parameter.requires_grad:
            wrong.append(
                f"{there} is trained {'here' if parameter.requires_grad else 'there'} alone"
            )
    inputs, labels = adapter.inputs_of(name)[0]
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    for mode in ("evaluation", "training"):
        train = mode == "training"
        exact, single = (
            _theirs(module, inputs, labels, dtype, train)
            for dtype in (torch.float64, torch.float32)
        )
        if not _relative(single["logits"], exact["logits"]) < _OTHER:
            exact, mode = single, f"{mode}, against float32"
        ours = _ours(net, paired, inputs, labels, train)
        whole = np.sqrt(
            sum(np.square(g).sum() for name, g in exact.items() if name.startswith("gradient"))
        )
        for what in [one for one in ours if one in exact]:
            a, b = ours[what].reshape(exact[what].shape), exact[what]
            allowed = max(_BOUND, _TIMES * _relative(single[what], b)) * np.linalg.norm(b)
            allowed = max(allowed, _UNIT * whole) if what.startswith("gradient") else allowed
            if not np.linalg.norm(a - b) <= allowed:
                wrong.append(f"{mode}: {what} {_relative(a, b):.0e} off")
    return wrong


def _relative(a, b):
    return float(np.linalg.norm(a - b) / (np.linalg.norm(b) or 1.0))


def check_initial(name):
    """What begins otherwise in a port, in words."""
    sides = {}
    for seed in range(2):
        for there, pair in _pairs(*adapter.build(name, seed=seed), adapter.renamed(name))[
            0
        ].items():
            sides.setdefault(there, []).append((_array(pair[0]).ravel(), pair[1].asnumpy().ravel()))
    wrong = []
    for there, builds in sides.items():
        theirs, ours = (np.stack(side).astype(np.float64) for side in zip(*builds, strict=True))
        fixed = [(side == side[:1]).all(0) for side in (ours, theirs)]
        both, drawn = fixed[0] & fixed[1], ~(fixed[0] | fixed[1])
        apart = np.abs(ours[0] - theirs[0]) * both
        # a table of float32's sines is 1e-6 off
        if apart.max(initial=0) > 1e-5 * np.abs(theirs).max(initial=0):
            wrong.append(f"{there}: up to {apart.max():.0e} apart in each build")
        elif (fixed[0] != fixed[1]).mean() > 1e-3:
            wrong.append(f"{there}: deviation {ours.std():.2g} here, {theirs.std():.2g} there")
        elif drawn.any():
            a, b = ours[:, drawn].ravel(), theirs[:, drawn].ravel()
            spread, error = max(a.std(), b.std()), 6 / np.sqrt(a.size)
            if (
                abs(a.std() - b.std()) > error * spread
                or abs(a.mean() - b.mean()) > 2**0.5 * error * spread
            ):
                words = (
                    f"mean {a.mean():.2g}, deviation {a.std():.2g} here, {b.mean():.2g}, "
                    f"{b.std():.2g} there"
                )
                wrong.append(f"{there}: {words}")
            elif a.size >= 1000 and abs(_fourth(a) - _fourth(b)) > 48**0.5 * error:
                wrong.append(
                    f"{there}: fourth moment {_fourth(a):.2g} here, {_fourth(b):.2g} there"
                )
    return wrong


def _fourth(values):
    centred = values - values.mean()
    return float((centred**4).mean() / (centred**2).mean() ** 2)


def _bias(net):
    net.net.cls.predictions.decoder.has_bias, net.net.cls.predictions.decoder.bias_add = (
        True,
        ops.add,
    )


def _freeze(net):
    net.net.model.encoder.embed_positions.embedding_table.requires_grad = False


def _transform(net):
    """The Fourier transform over both axes, its real part, by products."""

    def fftn(x):
        (a, b), (c, d) = (_waves(size) for size in x.shape[1:])
        return ops.matmul(ops.matmul(a, x), c) - ops.matmul(ops.matmul(b, x), d)

    for layer in net.net.fnet.encoder.layer:
        layer.fourier.self.construct = lambda x: (fftn(x),)


def _normed(net):
    """The convolution by a weight that is computed, not assigned."""
    embed = net.net.hubert.encoder.pos_conv_embed
    layer, conv = embed.conv, embed.conv.weight_norm_cell

    def construct(x):
        size = ops.sqrt(ops.square(layer.weight_v).sum((0, 1, 2), keepdims=True))
        weight = (layer.weight_v * layer.weight_g / size).squeeze(2)
        return mint_cpu.conv1d(x, weight, conv.bias, padding=conv.padding[-1], groups=conv.group)

    layer.construct = construct


def _waves(size):
    angles = 2 * np.pi * np.outer(np.arange(size), np.arange(size)) / size
    return Tensor(np.cos(angles).astype(np.float32)), Tensor(np.sin(angles).astype(np.float32))


_UNPADDED, _UNCACHED, _UNLIMITED = (
    {"pad_token_id": None},
    {"use_cache": False},
    {"sliding_window": None},
)
_BIASED, _COMPUTED = {"repair": _bias}, {"repair": _normed}

# What a port does wrong at its first place of `nets.WHERE`, and what makes the check agree, which
# proves it.
FAULTS = {
    "bert_mlm": ("the last layer has no bias; its Parameter is never added", "with it", _BIASED),
    "mistral": ("the sliding window is commented out", "without a window", _UNLIMITED),
    "qwen2": ("nn.Embedding trains its padding row", "without a padding row", _UNPADDED),
    "whisper": ("the encoder's positions are not frozen", "frozen", {"repair": _freeze}),
    "fnet": ("NumPy's transform has no gradient", "by products", {"repair": _transform}),
    "phi3": (
        "calls `get_usable_length`, which no cache has; its padding row (468) trains",
        "without one, or a padding row",
        _UNCACHED | _UNPADDED,
    ),
    "qwen3": ("takes the first layer of an empty cache", "without a cache", _UNCACHED),
    "hubert": ("weight norm is assigned: g has no gradient", "computed", _COMPUTED),
}

if __name__ == "__main__":  # check.py NET [right]: its first finding, with the fault put right
    name, *right = sys.argv[1:]
    print((check(name, **(FAULTS[name][2] if right else {})) or ["nothing"])[0])
