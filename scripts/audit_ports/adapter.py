"""A net of the audit on both sides: arguments by their places, one tensor of logits; and its
loss.
"""

import importlib

import mindspore
import mint_cpu
import numpy as np
import torch
import transformers
from mindspore import nn, ops
from whole_nets import WHOLE_NETS, updates_of

from nets import FRAMES, KINDS, LENGTH, NETS, batches

_MANY = {
    "ForCausalLM": LENGTH,
    "LMHeadModel": LENGTH,
    "ForMaskedLM": LENGTH,
    "ForConditionalGeneration": FRAMES,
}
mint_cpu.install()
# it binds functions of mint that are replaced by now
ports = importlib.import_module("mindone.transformers")


def _config(name, dropout, changes):
    head, _, values, _ = NETS[name]
    config = getattr(transformers, f"{head}Config")(**{**values, **changes})
    config._attn_implementation = "eager"
    if not dropout:
        _without_dropout(config)
    return config


def _without_dropout(config):
    for key, value in vars(config).items():
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)
        elif hasattr(value, "to_dict"):
            _without_dropout(value)


def _logits(outputs, task):
    if task == "Model":  # of text and images
        return outputs["logits_per_image"]
    logits = outputs[0] if type(outputs) is tuple else outputs["logits"]
    return logits.mean(-1) if task == "ForCTC" else logits


class Theirs(torch.nn.Module):
    """The reference, of transformers."""

    def __init__(self, name, config):
        super().__init__()
        head, self.task, _, kind = NETS[name]
        self.net, self.names = getattr(transformers, head + self.task)(config), KINDS[kind]

    def forward(self, *inputs):
        return _logits(
            self.net(**dict(zip(self.names, inputs, strict=True)), return_dict=True), self.task
        )


class TheirWhole(torch.nn.Module):
    """The reference of one of `WHOLE_NETS`."""

    def __init__(self, whole):
        super().__init__()
        self.net, self.whole, self.names = whole.reference(), whole, whole.names()

    def forward(self, *inputs):
        return self.whole.call(self.net, dict(zip(self.names, inputs, strict=True)))


class OurWhole(nn.Cell):
    """Its port."""

    def __init__(self, whole):
        super().__init__()
        self.net, self.whole, self.names = whole.port(), whole, whole.names()

    def construct(self, *inputs):
        return self.whole.call(self.net, dict(zip(self.names, inputs, strict=True)))


class Ours(nn.Cell):
    """The port, of mindone."""

    def __init__(self, name, config):
        super().__init__()
        head, self.task, _, kind = NETS[name]
        self.net, self.names = getattr(ports, head + self.task)(config), KINDS[kind]

    def construct(self, *inputs):
        return _logits(
            self.net(**dict(zip(self.names, inputs, strict=True)), return_dict=True), self.task
        )


def inputs_of(name):
    """One (inputs in their places, labels) for each update."""
    if name in WHOLE_NETS:
        named = updates_of(WHOLE_NETS[name])
    else:
        _, task, _, kind = NETS[name]
        named = batches(kind, _MANY.get(task))
    made = [(tuple(inputs.values()), labels) for inputs, labels in named]
    return [(inputs if len(inputs) > 1 else inputs[0], labels) for inputs, labels in made]


def renamed(name):
    """What of a parameter's name in the port is replaced for the reference's, for the check."""
    return WHOLE_NETS[name].renamed if name in WHOLE_NETS else ()


def factor_of(name):
    """What the independent check multiplies the weights by."""
    return WHOLE_NETS[name].weights if name in WHOLE_NETS else 1.0


def loss(logits, labels):
    """Cross-entropy of either framework over all positions; of numbers, the mean squared error."""
    if labels.is_floating_point():
        return ((logits - labels) ** 2).mean()
    rows, numbers = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
    if isinstance(logits, torch.Tensor):
        return torch.nn.functional.cross_entropy(rows, numbers.long())
    return ops.cross_entropy(rows, numbers.astype(mindspore.int32))


def build(name, dropout=True, seed=0, repair=None, **changes):
    """(MindSpore's net, torch's), each with its own random weights; `changes` of both
    configurations.
    """
    torch.manual_seed(seed)
    np.random.seed(seed)
    mindspore.set_seed(seed + 1)
    if name in WHOLE_NETS:
        whole = WHOLE_NETS[name]
        net, module = OurWhole(whole), TheirWhole(whole)
        if whole.repair:
            whole.repair(net)
        return net, module
    config = _config(name, dropout, changes)
    net, module = Ours(name, config), Theirs(name, config)
    if repair:
        repair(net)
    return net, module
