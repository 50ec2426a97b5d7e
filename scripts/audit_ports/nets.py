"""The nets of the audit: class, configuration and inputs, all small and with random weights."""

import numpy as np

TOKENS, LENGTH, FRAMES, CLASSES, BATCH = 50, 8, 6, 4, 8
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_WIDTHS = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_TEXT = {"vocab_size": TOKENS, **_WIDTHS, "max_position_embeddings": 40}
_BERT = {**_TEXT, "num_labels": CLASSES}
_LLAMA = {**_TEXT, **_SPECIAL, "num_key_value_heads": 2}
_GPT = {"vocab_size": TOKENS, "bos_token_id": 1, "eos_token_id": 2}
_PATCHES = {"image_size": 32, "patch_size": 8, **_WIDTHS}
_VIT = {**_PATCHES, "num_labels": CLASSES}
_HEADS = {
    f"{side}_{what}": n
    for side in ("encoder", "decoder")
    for what, n in (("layers", 2), ("attention_heads", 4))
}
_BART = {
    "vocab_size": TOKENS,
    "d_model": 32,
    **_HEADS,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    **_SPECIAL,
}
_BART_ = {**_BART, "max_position_embeddings": 40, "decoder_start_token_id": 2}
_CLIP = {"text_config": {**_TEXT, **_SPECIAL}, "vision_config": _PATCHES}
_CLIP = {key: {**config, "projection_dim": 16} for key, config in _CLIP.items()}
_TWO = {"hidden_sizes": [16, 32], "depths": [2, 2], "num_labels": CLASSES}
_FOUR = {"hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 2, 1], "num_labels": CLASSES}
_PYRAMID = {
    **_TWO,
    "depths": [1, 1],
    "num_encoder_blocks": 2,
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
}
_CONV = {
    "conv_dim": (16, 16),
    "conv_stride": (5, 2),
    "conv_kernel": (10, 3),
    "num_feat_extract_layers": 2,
}
_SOUND = {
    **_BERT,
    "vocab_size": 12,
    **_CONV,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
_WAVE = {**_SOUND, "mask_time_prob": 0.0}  # else each side masks what its own random numbers say
_LOCAL = {
    "attention_types": [[["global", "local"], 1]],
    "window_size": 4,
    "num_layers": 2,
    "num_heads": 4,
}

# name: (the class without what its suffix "for" adds, what for, its settings, kind of inputs)
NETS = {
    "bert": ("Bert", "ForSequenceClassification", _BERT, "text"),
    "bert_mlm": ("Bert", "ForMaskedLM", _BERT, "text"),
    "roberta": ("Roberta", "ForSequenceClassification", _BERT, "text"),
    "albert": ("Albert", "ForSequenceClassification", {**_BERT, "embedding_size": 16}, "text"),
    "electra": ("Electra", "ForSequenceClassification", {**_BERT, "embedding_size": 16}, "text"),
    "deberta_v2": (
        "DebertaV2",
        "ForSequenceClassification",
        {**_BERT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0},
        "text",
    ),
    "squeezebert": (
        "SqueezeBert",
        "ForSequenceClassification",
        {**_BERT, "embedding_size": 32},
        "text",
    ),
    "fnet": ("FNet", "ForSequenceClassification", _BERT, "ids"),
    "gpt2": (
        "GPT2",
        "LMHeadModel",
        {**_GPT, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40},
        "text",
    ),
    "gpt_neo": ("GPTNeo", "ForCausalLM", {**_TEXT, **_GPT, **_LOCAL}, "text"),
    "opt": ("OPT", "ForCausalLM", {**_LLAMA, "ffn_dim": 64, "word_embed_proj_dim": 32}, "text"),
    "falcon": ("Falcon", "ForCausalLM", {**_WIDTHS, **_GPT}, "text"),
    "llama": ("Llama", "ForCausalLM", _LLAMA, "text"),
    "qwen2": ("Qwen2", "ForCausalLM", _LLAMA, "text"),
    "qwen3": ("Qwen3", "ForCausalLM", {**_LLAMA, "head_dim": 8}, "text"),
    "mistral": ("Mistral", "ForCausalLM", {**_LLAMA, "sliding_window": 4}, "text"),
    "gemma": ("Gemma", "ForCausalLM", {**_LLAMA, "head_dim": 8}, "text"),
    "phi3": ("Phi3", "ForCausalLM", _LLAMA, "text"),
    "mamba": ("Mamba", "ForCausalLM", {**_LLAMA, "state_size": 4}, "ids"),
    "t5": (
        "T5",
        "ForConditionalGeneration",
        {
            "vocab_size": TOKENS,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
        },
        "two sequences",
    ),
    "bart": ("Bart", "ForConditionalGeneration", _BART_, "two sequences"),
    "m2m_100": ("M2M100", "ForConditionalGeneration", _BART_, "two sequences"),
    "vit": ("ViT", "ForImageClassification", _VIT, "image"),
    "deit": ("DeiT", "ForImageClassification", _VIT, "image"),
    "dinov2": ("Dinov2", "ForImageClassification", _VIT, "image"),
    "swin": (
        "Swin",
        "ForImageClassification",
        {
            **_VIT,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        "image",
    ),
    "convnext": ("ConvNext", "ForImageClassification", _FOUR, "image"),
    "resnet": ("ResNet", "ForImageClassification", {**_TWO, "embedding_size": 16}, "image"),
    "regnet": (
        "RegNet",
        "ForImageClassification",
        {**_TWO, "embedding_size": 16, "groups_width": 8},
        "image",
    ),
    "mobilenet_v2": (
        "MobileNetV2",
        "ForImageClassification",
        {"image_size": 32, "depth_multiplier": 0.35, "num_labels": CLASSES},
        "image",
    ),
    "segformer": (
        "Segformer",
        "ForImageClassification",
        {**_PYRAMID, "sr_ratios": [2, 1], "patch_sizes": [7, 3], "strides": [4, 2]},
        "image",
    ),
    "pvt": (
        "Pvt",
        "ForImageClassification",
        {
            **_PYRAMID,
            "image_size": 32,
            "sequence_reduction_ratios": [2, 1],
            "patch_sizes": [4, 2],
            "strides": [4, 2],
        },
        "image",
    ),
    "poolformer": ("PoolFormer", "ForImageClassification", _FOUR, "image"),
    "focalnet": (
        "FocalNet",
        "ForImageClassification",
        {
            **_TWO,
            "image_size": 32,
            "embed_dim": 16,
            "depths": [1, 2],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
        },
        "image",
    ),
    "clip": ("CLIP", "Model", {**_CLIP, "projection_dim": 16}, "text and image"),
    "siglip": ("Siglip", "Model", _CLIP, "ids and image"),
    "timesformer": ("Timesformer", "ForVideoClassification", {**_VIT, "num_frames": 2}, "video"),
    "wav2vec2": ("Wav2Vec2", "ForCTC", _WAVE, "sound"),
    "hubert": ("Hubert", "ForSequenceClassification", _WAVE, "sound"),
    "whisper": (
        "Whisper",
        "ForConditionalGeneration",
        {**_BART, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 20}
        | {"decoder_start_token_id": 1, "suppress_tokens": None, "begin_suppress_tokens": None},
        "spectrum",
    ),
}
_NORMED = {
    "weight_g": "parametrizations.weight.original0",
    "weight_v": "parametrizations.weight.original1",
}
_NORMED = {**_NORMED, "weight_norm_cell.weight": None, "weight_norm_cell.bias": "bias"}


def _of_sound(name):
    place = f"net.{name}.encoder.pos_conv_embed.conv"
    return {f"{place}.{ours}": theirs and f"{place}.{theirs}" for ours, theirs in _NORMED.items()}


MAPS = {name: _of_sound(name) for name in ("wav2vec2", "hubert")}  # what a user gives as --map
_IDS, _MASK, _IMAGE = "input_ids", "attention_mask", "pixel_values"
KINDS = {
    "text": (_IDS, _MASK),
    "ids": (_IDS,),
    "two sequences": (_IDS, _MASK, "decoder_input_ids"),
    "image": (_IMAGE,),
    "video": (_IMAGE,),
    "text and image": (_IDS, _IMAGE, _MASK),
    "ids and image": (_IDS, _IMAGE),
    "sound": ("input_values",),
    "spectrum": ("input_features", "decoder_input_ids"),
}


def batches(kind, many, updates=3):
    """Inputs by name and labels, for each update; sentences of several lengths are padded, one is
    full.

    `many`: labels of each sequence, one for each position, or of each sample.
    """
    rng, made = np.random.default_rng(0), []
    for _ in range(updates):
        length = rng.integers(4, LENGTH + 1, BATCH)
        length[0] = LENGTH
        mask = (np.arange(LENGTH) < length[:, None]).astype(np.int64)
        ids = np.where(mask, rng.integers(3, TOKENS, (BATCH, LENGTH)), 0)
        if kind == "text and image":  # CLIP reads its sentence at the end token
            ids = np.where(np.arange(LENGTH) == length[:, None] - 1, 2, ids)
        shape = {"video": (2, 3, 32, 32)}.get(kind, (3, 32, 32))
        values = {
            _IDS: ids.astype(np.int64),
            _MASK: mask,
            _IMAGE: rng.standard_normal((BATCH, *shape)),
            "decoder_input_ids": rng.integers(3, TOKENS, (BATCH, FRAMES)),
            "input_values": rng.standard_normal((BATCH, 400)),
            "input_features": rng.standard_normal((BATCH, FRAMES + 2, 40)),
        }
        labels = rng.integers(0, CLASSES, (BATCH, many) if many else BATCH).astype(np.int32)
        inputs = {name: values[name] for name in KINDS[kind]}
        made.append(
            (
                {k: v.astype(np.float32) if v.dtype.kind == "f" else v for k, v in inputs.items()},
                labels,
            )
        )
    return made


# Where a port is wrong: `bert:677` is a line of mindone 0.5.0's
# transformers/models/bert/modeling_bert.py. What begins otherwise has an `_init_weights` that does
# nothing, asks for a class that the net does not contain (`deberta_v2`), or is that of an older
# transformers (`mamba`).
_EMPTY = {
    "clip": 406,
    "t5": 611,
    "poolformer": 275,
    "resnet": 273,
    "timesformer": 472,
    "gpt2": 459,
    "regnet": 287,
}
_EMPTY |= {"focalnet": 630, "siglip": 381, "deit": 479, "pvt": 465, "deberta_v2": 712, "mamba": 279}
_SOUND_NORM = ("utils/weight_norm.py:46",)
WHERE = {
    **{name: (f"{name}:{line}",) for name, line in _EMPTY.items()},
    "bert_mlm": ("bert:677",),
    "mistral": ("mistral:646", "mistral:337"),
    "qwen2": ("qwen2:716",),
    "whisper": ("whisper:641",),
    "fnet": ("fnet:176",),
    "phi3": ("phi3:310", "phi3:468"),
    "qwen3": ("qwen3:644", "qwen3:457"),
    "hubert": _SOUND_NORM,
    "wav2vec2": _SOUND_NORM,
}
