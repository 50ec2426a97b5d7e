"""Whether a port is right, found out without the ladder: by its own pairing of names, and against float64.

Both nets get the same noisy weights, no dropout; logits, loss and every gradient of both are compared with those of the
reference in float64, in evaluation and in training mode.
"""

import copy

import adapter
import mindspore
import numpy as np
import torch
from mindspore import Tensor, ops

_NORMED = "parametrizations.weight.original"  # torch's weight norm
_RENAMED = (("embedding_table", "weight"), ("gamma", "weight"), ("beta", "bias"))
_RENAMED += (("weight_norm_cell.", ""), ("weight_g", f"{_NORMED}0"), ("weight_v", f"{_NORMED}1"))
_BOUND = 1e-4  # of float32's rounding in these small nets; what is wrong is wrong by much more
_CERTAIN = 16  # times the reference's own float32


def _pairs(net, module):
    """Our parameters by the reference's names; names of either side that have no partner."""
    theirs = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    paired, alone = {}, []
    for name, parameter in net.parameters_and_names(expand=True):
        candidates = [name]
        for ours, other in _RENAMED:
            candidates += [one.replace(ours, other) for one in candidates]
        there = next((one for one in candidates if one in theirs), None)
        if there is None or _shape(theirs[there]) != _shape(parameter):
            alone.append(name)
        else:
            paired[there] = parameter
    ids = {id(theirs[name]) for name in paired}
    alone += [name for name, parameter in module.named_parameters() if id(parameter) not in ids]
    return paired, alone


def _shape(array):
    """Without axes of 1: MindSpore's Conv1d has one more."""
    return [size for size in array.shape if size != 1]


def _gradients(module, inputs, labels, dtype):
    """Logits, loss and gradients by name in a dtype."""
    module.zero_grad()
    torch.set_default_dtype(dtype)
    try:
        outputs = module(*[torch.from_numpy(x).to(dtype if x.dtype.kind == "f" else None) for x in inputs])
        value = adapter.loss(outputs, torch.from_numpy(labels))
        value.backward()
    finally:
        torch.set_default_dtype(torch.float32)
    named = module.named_parameters(remove_duplicate=False)
    gradients = {name: np.zeros(p.shape) if p.grad is None else p.grad.double().numpy() for name, p in named}
    return outputs.detach().double().numpy(), value.item(), gradients


def check(name, **changes):
    """What is wrong with a port, in words; none if nothing is. `changes` of its configuration, for `FAULTS`."""
    net, module = adapter.build(name, dropout=False, **changes)
    rng = np.random.default_rng(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += torch.from_numpy(rng.normal(0, 0.05, tuple(parameter.shape)).astype(np.float32))
    paired, alone = _pairs(net, module)
    named = dict(module.named_parameters(remove_duplicate=False))
    state = {**named, **dict(module.named_buffers())}
    for there, parameter in paired.items():
        values = state[there].detach().numpy().reshape(parameter.shape)
        parameter.set_data(Tensor(values.copy()).astype(parameter.dtype))
    trained = {other: parameter.requires_grad for other, parameter in paired.items() if other in named}
    inputs, labels = adapter.inputs_of(name)[0]
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    exact, wrong = copy.deepcopy(module).double(), []
    wrong += [f"{other} is trained on one side" for other, one in trained.items() if one != named[other].requires_grad]
    for mode in ("evaluation", "training"):
        for one in (module, exact):
            one.train(mode == "training")
        net.set_train(mode == "training")
        logits, value, gradients = _gradients(exact, inputs, labels, torch.float64)
        if not np.isfinite(logits).all():  # a mask of float32's minimum, say
            logits, value, gradients = _gradients(module, inputs, labels, torch.float32)
        single, _, rounded = _gradients(module, inputs, labels, torch.float32)
        parameters = net.trainable_params()
        differentiate = mindspore.value_and_grad(lambda *x: adapter.loss(net(*x), Tensor(labels)), None, parameters)
        tensors = [Tensor(x) for x in inputs]
        ours, (our_value, our_gradients) = net(*tensors).asnumpy(), differentiate(*tensors)
        if (off := _off(ours, logits, single)) > 1:
            wrong.append(f"{mode}: logits {off * _BOUND:.0e} off")
        elif abs(float(our_value.asnumpy()) - value) > _BOUND * abs(value):
            wrong.append(f"{mode}: the loss is {float(our_value.asnumpy()):.6g}, in float64 {value:.6g}")
        whole = float(np.sqrt(sum(np.square(g).sum() for g in gradients.values())))
        there = {id(parameter): other for other, parameter in paired.items()}
        for parameter, gradient in zip(parameters, our_gradients, strict=True):
            if (other := there.get(id(parameter))) in gradients:
                ours = gradient.asnumpy().reshape(gradients[other].shape)
                off = _off(ours, gradients[other], rounded[other], 1e-5 * whole)
                wrong += [f"{mode}: gradient of {other} {off * _BOUND:.0e} off"] * (off > 1)
    return [*([f"without a partner: {', '.join(alone[:3])}"] if alone else ()), *wrong]


def check_initial(name):
    """Which initial values are drawn otherwise: mean and deviation over three builds, within six standard errors."""
    drawn = {}
    for seed in range(3):
        net, module = adapter.build(name, seed=seed)
        for other, parameter in _pairs(net, module)[0].items():
            if (there := dict(module.named_parameters(remove_duplicate=False)).get(other)) is not None:
                drawn.setdefault(other, []).append((parameter.asnumpy().ravel(), there.detach().numpy().ravel()))
    wrong = []
    for other, pairs in drawn.items():
        a, b = (np.concatenate(side).astype(np.float64) for side in zip(*pairs, strict=True))
        spread, error = max(a.std(), b.std()), 6 / np.sqrt(a.size)
        same = abs(a.std() - b.std()) <= error * spread and abs(a.mean() - b.mean()) <= 1e-6 + 2 * error * spread
        wrong += [f"{other}: deviation {a.std():.2g} here, {b.std():.2g} there"] * (not same)
    return wrong


def _bias(net):
    net.net.cls.predictions.decoder.has_bias, net.net.cls.predictions.decoder.bias_add = True, ops.add


def _freeze(net):
    net.net.model.encoder.embed_positions.embedding_table.requires_grad = False


_UNPADDED = {"pad_token_id": None}
# Where a port is wrong: file and line in mindone 0.5.0, what it does, and what makes the check agree, which proves it.
FAULTS = {
    "bert_mlm": ("bert:677", "the last layer has no bias; its Parameter is never added", "with it", {"repair": _bias}),
    "mistral": ("mistral:646", "the sliding window is commented out", "without a window", {"sliding_window": None}),
    "qwen2": ("qwen2:716", "nn.Embedding trains its padding row", "without a padding row", _UNPADDED),
    "fnet": ("fnet:92", "NumPy's transform has no gradient", "", {}),
    "whisper": ("whisper:641", "the encoder's positions are not frozen", "frozen", {"repair": _freeze}),
}


def _off(ours, exact, rounded, least=0.0):
    """How far ours is from float64, in units of what rounding may do."""
    size = max(float(np.linalg.norm(exact)), least) or 1.0
    own = float(np.linalg.norm(rounded - exact)) / size
    return float(np.linalg.norm(ours - exact)) / size / max(_BOUND, _CERTAIN * own)
