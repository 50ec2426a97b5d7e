"""Whole nets of mindone in which arrays are trained that the original keeps, or a setting is another
one: the ladder beside the check of `check.py`.

scripts/audit_ports/install.sh VENV, then VENV/bin/python scripts/audit_ports/whole_nets.py [NET …].
"""

import importlib
import json
import sys
import time

import check
import mindspore
import mint_cpu
import numpy as np
import torch
from mindspore import nn, ops

mint_cpu.install()

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
_BACKBONE = {
    "embedding_size": 8,
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1] * 4,
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
}
_SAM = {
    "vision_config": {
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
    "prompt_encoder_config": {
        "hidden_size": 16,
        "image_size": 32,
        "patch_size": 8,
        "mask_input_channels": 4,
    },
    "mask_decoder_config": {
        "hidden_size": 16,
        "mlp_dim": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 16,
    },
}


def _rng():
    return np.random.default_rng(0)


def _numbers(*shape):
    return _rng().standard_normal(shape).astype(np.float32)


def _transformers(name, config, values, output):
    def make(package):
        made = getattr(importlib.import_module("transformers"), config)(**values())
        made._attn_implementation = "eager"
        return getattr(importlib.import_module(package + "transformers"), name)(made)

    return make, output


def _diffusers(module, name, values, output):
    def make(package):
        models = importlib.import_module(f"{package}diffusers.models.transformers.{module}")
        return getattr(models, name)(**values)

    return make, output


def _rt_detr():
    transformers = importlib.import_module("transformers")
    return {**_RT_DETR, "backbone_config": transformers.RTDetrResNetConfig(**_BACKBONE)}


def _sam():
    transformers = importlib.import_module("transformers")
    parts = {"vision": "Vision", "prompt_encoder": "PromptEncoder", "mask_decoder": "MaskDecoder"}
    return {
        f"{key}_config": getattr(transformers, f"Sam{word}Config")(**_SAM[f"{key}_config"])
        for key, word in parts.items()
    }


_TOKENS = {"encoder_hidden_states": _numbers(2, 5, 16)}
_TIME = {"timestep": np.array([100.0, 700.0], np.float32)}
# name → (how both nets are made, how their outputs are read), the inputs by name
NETS = {
    "rt_detr": (
        *_transformers(
            "RTDetrForObjectDetection",
            "RTDetrConfig",
            _rt_detr,
            lambda net, given: net(**given, return_dict=True).logits,
        ),
        {"pixel_values": _numbers(2, 3, 64, 64)},
    ),
    "sam": (
        *_transformers(
            "SamModel",
            "SamConfig",
            _sam,
            lambda net, given: net(**given, return_dict=True).pred_masks,
        ),
        {
            "pixel_values": _numbers(2, 3, 32, 32),
            "input_points": _rng().uniform(0, 32, (2, 1, 3, 2)).astype(np.float32),
        },
    ),
    "sd3": (
        *_diffusers(
            "transformer_sd3",
            "SD3Transformer2DModel",
            {
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
            },
            lambda net, given: net(**given, return_dict=False)[0],
        ),
        {
            "hidden_states": _numbers(2, 4, 8, 8),
            **_TOKENS,
            "pooled_projections": _numbers(2, 16),
            **_TIME,
        },
    ),
    "ltx": (
        *_diffusers(
            "transformer_ltx",
            "LTXVideoTransformer3DModel",
            {
                "in_channels": 8,
                "out_channels": 8,
                "num_attention_heads": 2,
                "attention_head_dim": 16,
                "cross_attention_dim": 32,
                "num_layers": 2,
                "caption_channels": 16,
            },
            lambda net, given: net(**given, num_frames=2, height=2, width=2, return_dict=False)[0],
        ),
        {
            "hidden_states": _numbers(2, 8, 8),
            **_TOKENS,
            "timestep": np.array([100, 700], np.int64),
            "encoder_attention_mask": np.ones((2, 5), np.int64),
        },
    ),
    "chroma": (
        *_diffusers(
            "transformer_chroma",
            "ChromaTransformer2DModel",
            {
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
            },
            lambda net, given: net(**given, return_dict=False)[0],
        ),
        {
            "hidden_states": _numbers(2, 4, 8),
            **_TOKENS,
            "timestep": np.array([0.1, 0.7], np.float32),
            "img_ids": np.tile(np.arange(4)[:, None], 3).astype(np.float32),
            "txt_ids": np.zeros((5, 3), np.float32),
            "attention_mask": np.ones((2, 9), bool),
        },
    ),
}


class Theirs(torch.nn.Module):
    """The reference."""

    def __init__(self, name):
        super().__init__()
        make, self.output, given = NETS[name]
        self.net, self.names = make(""), list(given)

    def forward(self, *inputs):
        return self.output(self.net, dict(zip(self.names, inputs, strict=True)))


class Ours(nn.Cell):
    """The port."""

    def __init__(self, name):
        super().__init__()
        make, self.output, given = NETS[name]
        self.net, self.names = make("mindone."), list(given)

    def construct(self, *inputs):
        return self.output(self.net, dict(zip(self.names, inputs, strict=True)))


def build(name, dropout=False, seed=0):
    """(MindSpore's net, torch's), each with its own random weights."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    mindspore.set_seed(seed + 1)
    return Ours(name), Theirs(name)


def inputs_of(name):
    """One (inputs in their places, labels) for each update. There are no labels."""
    inputs = tuple(NETS[name][2].values())
    inputs = inputs if len(inputs) > 1 else inputs[0]
    return [(inputs, np.zeros(2, np.float32))] * 2


def loss(outputs, labels):
    """The mean distance from 0.3, in either framework."""
    module = torch if isinstance(outputs, torch.Tensor) else ops
    return module.sqrt((outputs - 0.3) ** 2 + 1).mean() + 0 * labels.sum()


def ladder_of(name):
    """Compare one net with its original in two updates of AdamW."""
    from resnet_fn import recipes
    from resnet_fn.parity.replay import compare_step
    from resnet_fn.parity.tasks import ladder_recipe
    from resnet_fn.runtime import process

    process.start("CPU")
    net, module = build(name)
    recipe = ladder_recipe(recipes.recipe("digits"), 2, None, {"optimizer": "adamw"})
    options = {"reference_loss": loss, "loss": loss, "initialisation": False}
    return compare_step(net, module, inputs_of(name), recipe, mode="pynative", **options)


def main():
    check.adapter = sys.modules[__name__]
    for name in sys.argv[1:] or NETS:
        began = time.process_time()
        try:
            found = check.check(name)
        except Exception as error:
            found = [f"it fails: {type(error).__name__}: {str(error).strip().splitlines()[:1]}"]
        try:
            from run import summary

            from resnet_fn.parity.show.table import table

            ladder = ladder_of(name)
            print(table(ladder), file=sys.stderr)
            row = summary(ladder)
        except Exception as error:
            row = {"verdict": "failed", "words": str(error).strip().splitlines()[0]}
        seconds = time.process_time() - began
        print(
            json.dumps({"net": name, "check": found[:6], **row, "seconds": round(seconds)}),
            flush=True,
        )


if __name__ == "__main__":
    main()
