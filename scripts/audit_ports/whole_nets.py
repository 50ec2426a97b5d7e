"""Nets of the audit that are no heads of `nets.NETS`: of diffusers, of several outputs, of other
packages. All are small, with random weights, and are trained to be near random numbers.
"""

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np


@dataclass(frozen=True)
class WholeNet:
    """A net of both packages, and what is put through it."""

    reference: Callable[[], Any]
    port: Callable[[], Any]
    call: Callable[[Any, dict[str, Any]], Any]  # (either net, its inputs by name) → an output
    inputs: Callable[[np.random.Generator], dict[str, np.ndarray]]  # of one update
    output: tuple[int, ...]  # its shape
    # A parameter's name in the port: what of it is replaced for the reference's.
    renamed: tuple[tuple[str, str], ...] = ()
    repair: Callable[[Any], None] | None = None  # of the port, in place
    # What the independent check multiplies the weights by: small ones show another eps.
    weights: float = 1.0

    def names(self):
        return list(self.inputs(np.random.default_rng(0)))


def _numbers(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def _tokens(rng):
    return {"encoder_hidden_states": _numbers(rng, 4, 5, 16)}


def _of_diffusers(module, name, config, inputs, output, **sizes):
    path = f"diffusers.models.transformers.transformer_{module}"

    def make(package):
        return getattr(importlib.import_module(package + path), name)(**config)

    def call(net, given):
        return net(**given, **sizes, return_dict=False)[0]

    return WholeNet(lambda: make(""), lambda: make("mindone."), call, inputs, output)


def _of_transformers(make, call, inputs, output):
    return WholeNet(lambda: make(""), lambda: make("mindone."), call, inputs, output)


def _ltx_inputs(rng):
    mask = (np.arange(5) < np.array([5, 3, 4, 2])[:, None]).astype(np.int64)
    return {
        "hidden_states": _numbers(rng, 4, 8, 8),
        **_tokens(rng),
        "timestep": rng.integers(0, 100, 4),
        "encoder_attention_mask": mask,
    }


_LTX = {
    "in_channels": 8,
    "out_channels": 8,
    "num_attention_heads": 2,
    "attention_head_dim": 16,
    "cross_attention_dim": 32,
    "num_layers": 2,
    "caption_channels": 16,
}


def _chroma_inputs(rng):
    return {
        "hidden_states": _numbers(rng, 4, 4, 8),
        **_tokens(rng),
        "timestep": rng.uniform(0, 0.1, 4).astype(np.float32),
        "img_ids": np.tile(np.arange(4)[:, None], 3).astype(np.float32),
        "txt_ids": np.zeros((5, 3), np.float32),
    }


_CHROMA = {
    "patch_size": 1,
    "in_channels": 8,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 16,
    "axes_dims_rope": (4, 6, 6),
    "approximator_num_channels": 8,
    "approximator_hidden_dim": 16,
    "approximator_layers": 1,
}


def _sd3_inputs(rng):
    return {
        "hidden_states": _numbers(rng, 4, 4, 8, 8),
        **_tokens(rng),
        "pooled_projections": _numbers(rng, 4, 16),
        "timestep": rng.uniform(0, 100, 4).astype(np.float32),
    }


_SD3 = {
    "sample_size": 8,
    "patch_size": 2,
    "in_channels": 4,
    "num_layers": 2,
    "attention_head_dim": 8,
    "num_attention_heads": 4,
    "joint_attention_dim": 16,
    "caption_projection_dim": 32,
    "pooled_projection_dim": 16,
    "out_channels": 4,
    "pos_embed_max_size": 16,
}

_SAM = {
    "vision": {
        "hidden_size": 32,
        "output_channels": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 32,
        "patch_size": 8,
        "window_size": 2,
        "global_attn_indexes": [1],
        "mlp_dim": 32,
        "num_pos_feats": 8,
    },
    "prompt_encoder": {
        "hidden_size": 16,
        "image_size": 32,
        "patch_size": 8,
        "mask_input_channels": 4,
    },
    "mask_decoder": {
        "hidden_size": 16,
        "mlp_dim": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 16,
    },
}


def _sam(package):
    transformers = importlib.import_module("transformers")
    parts = {f"{name}_config": values for name, values in _SAM.items()}
    config = transformers.SamConfig(**parts)
    config._attn_implementation = config.vision_config._attn_implementation = "eager"
    return importlib.import_module(f"{package}transformers").SamModel(config)


def _sam_inputs(rng):
    return {
        "pixel_values": _numbers(rng, 4, 3, 32, 32),
        "input_points": rng.uniform(0, 32, (4, 1, 3, 2)).astype(np.float32),
        "input_labels": np.tile(np.array([1, 0, 1], np.int32), (4, 1, 1)),
    }


def _sam_output(net, given):
    """The masks: [samples, prompts, masks, height, width]."""
    return net(**given, return_dict=True).pred_masks


_BACKBONE = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1] * 4,
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
}
_RT_DETR = {
    "encoder_in_channels": [16, 24, 32],
    "encoder_hidden_dim": 32,
    "d_model": 32,
    "encoder_ffn_dim": 32,
    "encoder_attention_heads": 4,
    "decoder_in_channels": [32] * 3,
    "decoder_ffn_dim": 32,
    "decoder_attention_heads": 4,
    "num_queries": 10,
    "decoder_layers": 2,
    "num_labels": 4,
    "num_denoising": 0,
    "dropout": 0.0,
}


def _rt_detr(package):
    transformers = importlib.import_module("transformers")
    backbone = transformers.RTDetrResNetConfig(**_BACKBONE)
    config = transformers.RTDetrConfig(**_RT_DETR, backbone_config=backbone)
    config._attn_implementation = "eager"
    return importlib.import_module(f"{package}transformers").RTDetrForObjectDetection(config)


def _rt_detr_inputs(rng):
    return {"pixel_values": _numbers(rng, 4, 3, 64, 64)}


def _rt_detr_output(net, given):
    """Of each query, the logits of its classes."""
    return net(**given, return_dict=True).logits


def _module(name, absent):
    """A module of a package whose `__init__`, which imports much, is not run. `absent`: a package
    that it imports and whose functions the net does not call.
    """
    if name in sys.modules:
        return sys.modules[name]
    parts = name.split(".")
    top = importlib.util.find_spec(parts[0]).submodule_search_locations[0]
    for count in range(1, len(parts)):
        package = types.ModuleType(".".join(parts[:count]))
        package.__path__ = ["/".join((top, *parts[1:count]))]
        sys.modules.setdefault(package.__name__, package)
    sys.modules.setdefault(absent, mock.MagicMock(__version__="2.0.0"))
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules[absent]


_ECAPA = {
    "input_size": 8,
    "channels": [16, 16, 16, 16, 48],
    "attention_channels": 8,
    "res2net_scale": 4,
    "se_channels": 8,
    "lin_neurons": 12,
    "global_context": False,  # the port has no other
}


def _speechbrain():
    return _module("speechbrain.lobes.models.ECAPA_TDNN", "torchaudio").ECAPA_TDNN(**_ECAPA)


def _mindaudio():
    return _module("mindaudio.models.ecapatdnn", "librosa").EcapaTDNN(**_ECAPA)


def _embedding(net, given):
    output = net(**given)
    return output.squeeze(1) if output.ndim == 3 else output  # the port squeezes


def _easyocr():
    return _module("easyocr.model.vgg_model", "torchvision").VGG_FeatureExtractor(3, 512)


def _mindocr():
    return _module("mindocr.models.backbones.rec_vgg", "lmdb").RecVGG()


def _features(net, given):
    output = net(*given.values())
    return output[0] if isinstance(output, list) else output


_ECAPA_NAMES = ((r"\b(conv\d?|fc|shortcut)\.(weight|bias)$", r"\1.conv.\2"), ("norm2d", "norm"))
_VGG_PLACES = {1: 0, 2: 3, 3: 6, 4: 8, 5: 11, 6: 14, 7: 18}
_VGG_NAMES = (
    *((rf"conv{number}\.conv", f"ConvNet.{place}") for number, place in _VGG_PLACES.items()),
    (r"conv5\.bn", "ConvNet.12"),
)


def _attend_in_float32():
    """mindone's attention rounds its inputs to half precision, and calls an operation for cards."""
    layers = importlib.import_module("mindone.diffusers.models.layers_compat")
    dispatch = importlib.import_module("mindone.diffusers.models.attention_dispatch")
    dispatch.scaled_dot_product_attention = layers.math_attention_op


def _repair_ltx(net):
    _attend_in_float32()
    norm = net.net.norm_out
    del norm.weight, norm.bias
    norm.weight = norm.bias = None


def _repair_chroma(net):
    _attend_in_float32()
    for norm in net.net.distilled_guidance_layer.norms:
        norm.eps = 2.0**-23  # torch's, where none is given


def _freeze(*endings):
    def repair(net):
        for name, parameter in net.parameters_and_names():
            if name.endswith(endings):
                parameter.requires_grad = False

    return repair


def _repair_rt_detr(net):
    # not all of it: gradients pass through reference points, which the original detaches
    for _, cell in net.cells_and_names():
        if type(cell).__name__ == "RTDetrFrozenBatchNorm2d":
            for parameter in cell.get_parameters():
                parameter.requires_grad = False


_OF_TRANSFORMERS = {
    "sam": (_sam, _sam_output, _sam_inputs, (4, 1, 3, 16, 16)),
    "rt_detr": (_rt_detr, _rt_detr_output, _rt_detr_inputs, (4, 10, 4)),
}
_UNREPAIRED = {
    "ltx": _of_diffusers(
        "ltx",
        "LTXVideoTransformer3DModel",
        _LTX,
        _ltx_inputs,
        (4, 8, 8),
        num_frames=2,
        height=2,
        width=2,
    ),
    "chroma": replace(
        _of_diffusers("chroma", "ChromaTransformer2DModel", _CHROMA, _chroma_inputs, (4, 4, 8)),
        weights=0.1,
    ),
    "sd3": _of_diffusers("sd3", "SD3Transformer2DModel", _SD3, _sd3_inputs, (4, 4, 8, 8)),
    **{name: _of_transformers(*one) for name, one in _OF_TRANSFORMERS.items()},
    "ecapa_tdnn": WholeNet(
        _speechbrain,
        _mindaudio,
        _embedding,
        lambda rng: {"x": _numbers(rng, 4, 20, 8)},
        (4, 12),
        _ECAPA_NAMES,
    ),
    "rec_vgg": WholeNet(
        _easyocr,
        _mindocr,
        _features,
        lambda rng: {"pixels": _numbers(rng, 4, 3, 32, 16)},
        (4, 512, 1, 3),
        _VGG_NAMES,
    ),
}


def _repair_ecapa(net):
    """The convolutions on inputs that are reflected at both ends."""
    nn, ops = (importlib.import_module(f"mindspore.{name}") for name in ("nn", "ops"))
    for _, cell in net.cells_and_names():
        if isinstance(cell, nn.Conv1d) and cell.kernel_size[1] > 1:
            width = cell.dilation[1] * (cell.kernel_size[1] - 1) // 2
            cell.pad_mode = "valid"
            cell.conv2d = ops.Conv2D(
                cell.out_channels, cell.kernel_size, pad_mode="valid", dilation=cell.dilation
            )
            cell.construct = _reflected(cell.construct, ops.pad, (width, width))


def _reflected(construct, pad, widths):
    return lambda x: construct(pad(x, widths, "reflect"))


_REPAIRS = {
    "ecapa_tdnn": _repair_ecapa,
    "ltx": _repair_ltx,
    "chroma": _repair_chroma,
    "sd3": _freeze("pos_embed.pos_embed"),
    "sam": _freeze("positional_embedding"),
    "rt_detr": _repair_rt_detr,
}
WHOLE_NETS = {
    **_UNREPAIRED,
    **{f"{name}_right": replace(_UNREPAIRED[name], repair=one) for name, one in _REPAIRS.items()},
}
# Where a port is wrong: `transformer_ltx:480` is a line of transformer_ltx.py of the port's package.
WHERE = {
    "ltx": ("transformer_ltx:480", "layers_compat:691"),
    "chroma": ("transformer_chroma:191", "layers_compat:691"),
    "sd3": ("embeddings:538",),
    "sam": ("sam:620", "sam:1152"),
    "rt_detr": ("rt_detr:357", "rt_detr:1492", "rt_detr:1857"),
    "ecapa_tdnn": ("ecapatdnn:47",),
    "rec_vgg": ("rec_vgg:53", "rec_vgg:55", "rec_vgg:58"),
}


def updates_of(net, updates=3):
    """Inputs by name and labels, for each update."""
    rng = np.random.default_rng(0)
    return [(net.inputs(rng), _numbers(rng, *net.output)) for _ in range(updates)]
