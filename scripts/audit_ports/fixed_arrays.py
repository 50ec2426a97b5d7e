"""Arrays that PyTorch's classes keep fixed (buffers, frozen parameters) and that mindone's train:
the second table of mindone in docs/audit.md.

scripts/audit_ports/install.sh VENV, then VENV/bin/python scripts/audit_ports/fixed_arrays.py [CLASS
…]. Each class runs alone before a dense layer, through the ladder and through a check of its own
(`trained_by_port`), which imports nothing of the ladder.
"""

import argparse
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mindspore
import mint_cpu
import numpy as np
import torch
from mindspore import nn, ops

mint_cpu.install()

_RNG = np.random.default_rng(0)
_IMAGE = _RNG.normal(size=(4, 4, 8, 8)).astype(np.float32)
_POINTS = _RNG.uniform(size=(4, 1, 3, 2)).astype(np.float32)
_SEQUENCE = _RNG.normal(size=(4, 6, 8)).astype(np.float32)
_IDS = _RNG.integers(3, 9, (4, 6))
_TABLE = "SinusoidalPositionalEmbedding"


@dataclasses.dataclass(frozen=True)
class Case:
    """A class of both packages, and what is put through it."""

    module: str  # of transformers or diffusers, and of mindone below it
    name: str
    make: Callable[[Any, Any], Any]  # (the class, its configuration's module) → an instance
    given: np.ndarray  # the net's input
    # (the instance, the input) → an output [samples, …]
    call: Callable[[Any, Any], Any] = lambda layer, x: layer(x)


def _of_transformers(model: str, name: str, make: Any, given: Any, *call: Any) -> Case:
    return Case(f"transformers.models.{model}.modeling_{model}", name, make, given, *call)


def _codebook(layer: Any, x: Any) -> Any:
    return x + layer.decode(layer.encode(x))


def _initialised(layer: Any) -> Any:
    layer._init_weight()  # as the net's `_init_weights` does
    return layer


def _of_shape(layer: Any, x: Any) -> Any:
    return layer(x.shape) + 0 * x[..., None]


_POSITIONS = SimpleNamespace(hidden_size=16, num_pos_feats=8, scale=1)
_CODES = SimpleNamespace(codebook_size=8, codebook_dim=8)
_TEXT = {
    "vocab_size": 16,
    "hidden_size": 16,
    "type_vocab_size": 2,
    "max_position_embeddings": 12,
    "pad_token_id": 1,
    "hidden_dropout_prob": 0.0,
    "layer_norm_eps": 1e-5,
    "position_embedding_type": "absolute",
}
_SWIN = {
    "image_size": 8,
    "patch_size": 1,
    "embed_dim": 8,
    "depths": [1],
    "num_heads": [2],
    "window_size": 4,
    "drop_path_rate": 0.0,
}
_VOCODER = {
    "model_in_dim": 8,
    "upsample_initial_channel": 8,
    "upsample_rates": [2],
    "upsample_kernel_sizes": [4],
    "resblock_kernel_sizes": [3],
    "resblock_dilation_sizes": [[1]],
}
_VISION = SimpleNamespace(hidden_size=16, image_size=8, patch_size=4, num_channels=4)
_ROPE = {"short_factor": [1.0] * 4, "long_factor": [1.0] * 4}


def _frozen_norm(model: str, name: str) -> Case:
    return _of_transformers(model, f"{name}FrozenBatchNorm2d", lambda of, _: of(4), _IMAGE)


def _random_positions(model: str, name: str) -> Case:
    return _of_transformers(
        model, f"{name}PositionalEmbedding", lambda of, _: of(_POSITIONS), _POINTS
    )


def _codes(model: str, name: str) -> Case:
    return _of_transformers(
        model, f"{name}EuclideanCodebook", lambda of, _: of(_CODES), _SEQUENCE, _codebook
    )


def _table(model: str, name: str, *arguments: Any) -> Case:
    return _of_transformers(model, name + _TABLE, lambda of, _: of(*arguments), _IDS)


def _by_shape(model: str, name: str) -> Case:
    return _of_transformers(
        model, name + _TABLE, lambda of, _: _initialised(of(8, 16)), _IDS, _of_shape
    )


def _of_diffusers(module: str, name: str, make: Any, given: Any, *call: Any) -> Case:
    return Case(f"diffusers.models.{module}", name, make, given, *call)


CASES = {
    "rt_detr": _frozen_norm("rt_detr", "RTDetr"),
    "rt_detr_v2": _frozen_norm("rt_detr_v2", "RTDetrV2"),
    "table_transformer": _frozen_norm("table_transformer", "TableTransformer"),
    "sam": _random_positions("sam", "Sam"),
    "sam2": _random_positions("sam2", "Sam2"),
    "sam2_video": _random_positions("sam2_video", "Sam2Video"),
    "sam_hq": _random_positions("sam_hq", "SamHQ"),
    "seamless_m4t": _table("seamless_m4t", "SeamlessM4T", 40, 16, 1),
    "seamless_m4t_v2": _table("seamless_m4t_v2", "SeamlessM4Tv2", 40, 16, 1),
    "marian": _by_shape("marian", "Marian"),
    "roformer": _by_shape("roformer", "RoFormer"),
    "encodec": _codes("encodec", "Encodec"),
    "xcodec": _codes("xcodec", "Xcodec"),
    "mimi": _codes("mimi", "Mimi"),
    "fastspeech2_conformer": _of_transformers(
        "fastspeech2_conformer",
        "FastSpeech2ConformerHifiGan",
        lambda of, _: of(transformers_config("FastSpeech2ConformerHifiGanConfig", _VOCODER)),
        _SEQUENCE,
    ),
    "swin2sr": _of_transformers(
        "swin2sr",
        "Swin2SRModel",
        lambda of, _: of(transformers_config("Swin2SRConfig", _SWIN)),
        _IMAGE[:, :3],
        lambda layer, x: layer(x, return_dict=True).last_hidden_state,
    ),
    "mlcd": _of_transformers("mlcd", "MLCDVisionEmbeddings", lambda of, _: of(_VISION), _IMAGE),
    "xlm_roberta": _of_transformers(
        "xlm_roberta",
        "XLMRobertaEmbeddings",
        lambda of, _: of(SimpleNamespace(**_TEXT)),
        _IDS,
    ),
    "zoedepth": _of_transformers(
        "zoedepth",
        "LogBinomialSoftmax",
        lambda of, torch_: of(4, torch_.softmax),
        np.abs(_IMAGE) / 8,
    ),
    "sd3": _of_diffusers(
        "embeddings",
        "PatchEmbed",
        lambda of, _: of(8, 8, 2, 4, 16, pos_embed_max_size=6),
        _IMAGE,
    ),
    "omnigen": _of_diffusers(
        "transformers.transformer_omnigen",
        "OmniGenSuScaledRotaryEmbedding",
        lambda of, _: of(8, rope_scaling=_ROPE),
        _IDS,
        lambda layer, x: x[..., None] * layer(x, x)[0][None, : x.shape[1]],
    ),
    "downsample1d": _of_diffusers(
        "unets.unet_1d_blocks", "Downsample1d", lambda of, _: of(), _SEQUENCE
    ),
    "upsample1d": _of_diffusers(
        "unets.unet_1d_blocks", "Upsample1d", lambda of, _: of(), _SEQUENCE
    ),
    # right ports
    "musicgen": _of_transformers(
        "musicgen", f"Musicgen{_TABLE}", lambda of, _: of(10, 16), _IDS[:, None]
    ),
    "musicgen_melody": _of_transformers(
        "musicgen_melody", f"MusicgenMelody{_TABLE}", lambda of, _: of(10, 16), _SEQUENCE
    ),
    "speech_to_text": _table("speech_to_text", "Speech2Text", 40, 16, 1),
    "speecht5": _table("speecht5", "SpeechT5", 40, 16, 1),
}


def transformers_config(name: str, values: dict[str, Any]) -> Any:
    """Return a configuration of transformers, which both packages take."""
    config = getattr(importlib.import_module("transformers"), name)(**values)
    config._attn_implementation = "eager"
    return config


def _features(case: Case, layer: Any, x: Any) -> Any:
    outputs = case.call(layer, x)
    outputs = outputs[0] if isinstance(outputs, tuple) else outputs
    if outputs.shape[0] != x.shape[0]:  # a table, the same for all samples
        outputs = outputs[None] + 0 * x.reshape(x.shape[0], -1)[:, :1, None]
    return outputs.reshape(x.shape[0], -1)


class Theirs(torch.nn.Module):
    """The reference: a class of transformers or diffusers before a dense layer."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        module = importlib.import_module(case.module)
        self.case, self.layer = case, case.make(getattr(module, case.name), torch)
        with torch.no_grad():
            width = _features(case, self.layer, torch.from_numpy(case.given)).shape[1]
        self.head = torch.nn.Linear(width, 3)

    def forward(self, x: Any) -> Any:
        """Return logits."""
        return self.head(_features(self.case, self.layer, x).to(self.head.weight.dtype))


class Ours(nn.Cell):
    """The port: mindone's class before a dense layer."""

    def __init__(self, case: Case, width: int) -> None:
        super().__init__()
        module = importlib.import_module(f"mindone.{case.module}")
        self.case, self.layer = case, case.make(getattr(module, case.name), mindspore.mint)
        self.head = nn.Dense(width, 3)

    def construct(self, x: Any) -> Any:
        """Return logits."""
        return self.head(_features(self.case, self.layer, x).astype(mindspore.float32))


def build(name: str) -> tuple[Ours, Theirs]:
    """Return both nets of a case."""
    torch.manual_seed(0)
    mindspore.set_seed(0)
    case = CASES[name]
    reference = Theirs(case)
    return Ours(case, reference.head.in_features), reference


def trained_by_port(name: str) -> dict[str, str]:
    """For each array that MindSpore trains and torch does not, found without the ladder, return
    what it is in torch, and how one update of AdamW moves it.
    """
    port, reference = build(name)
    case = CASES[name]
    theirs = dict(reference.named_parameters()) | dict(reference.named_buffers())
    labels = mindspore.Tensor([0, 1, 2, 0], mindspore.int32)
    fixed = {}
    for path, parameter in port.parameters_and_names():
        other = theirs.get(path)
        if other is None and path.startswith("layer."):
            fixed |= {path: "without a counterpart"} if parameter.requires_grad else {}
        elif other is not None and parameter.requires_grad and not other.requires_grad:
            kind = "frozen" if isinstance(other, torch.nn.Parameter) else "buffer"
            fixed[path] = kind
    floats = [one for one in port.trainable_params() if one.dtype == mindspore.float32]
    gradients = mindspore.value_and_grad(
        lambda x: ops.cross_entropy(port(x), labels), None, mindspore.ParameterTuple(floats)
    )(mindspore.Tensor(case.given))[1]
    before = {one.name: one.asnumpy().copy() for one in floats}
    nn.AdamWeightDecay(floats, learning_rate=1e-3, weight_decay=0.1)(gradients)
    sizes = {one.name: g for one, g in zip(floats, gradients, strict=True)}
    found = {}
    for path, kind in fixed.items():
        parameter = dict(port.parameters_and_names())[path]
        if parameter.name not in before:
            found[path] = f"{kind}; {parameter.dtype}, which no optimizer takes"
            continue
        moved = np.abs(parameter.asnumpy() - before[parameter.name]).max()
        has = np.abs(sizes[parameter.name].asnumpy()).max() > 0
        how = "has a gradient" if has else "decays" if moved else "is 0, without a gradient"
        found[path] = f"{kind}; {how}"
    return found


def ladder_of(name: str) -> dict[str, str]:
    """Return what the ladder's stage says of each array that only one net trains, or of the first
    stage that differs otherwise.
    """
    from resnet_fn import recipes
    from resnet_fn.parity.replay import compare_step
    from resnet_fn.parity.show.table import table
    from resnet_fn.parity.tasks import ladder_recipe
    from resnet_fn.runtime import process

    process.start("CPU")
    port, reference = build(name)
    given = CASES[name].given
    batches = [(given, np.array([0, 1, 2, 0], np.int32))] * 2
    recipe = ladder_recipe(recipes.recipe("digits"), 4, None, {"optimizer": "adamw"})
    ladder = compare_step(port, reference, batches, recipe, mode="pynative", initialisation=False)
    print(table(ladder), file=sys.stderr)
    first = ladder.first_stage
    if first is None:
        return {} if ladder.agrees else {"": "undecided"}
    if first.id.name != "trained arrays":
        return {"": f"{first.id.name} differs"}
    return dict(line.split(": ") for line in first.hints)


def row_of(name: str) -> str:
    """Return the row of a class, from both answers."""
    answers = []
    for answer in (trained_by_port, ladder_of):
        try:
            answers.append(answer(name))
        except Exception as error:
            traceback.print_exc()
            lines = str(error).splitlines()
            answers.append({"": f"it fails: {type(error).__name__}: {lines[0] if lines else ''}"})
    checked, ladder = answers
    arrays: dict[str, list[str]] = {}
    for path, words in checked.items():
        arrays.setdefault(words, []).append(f"`{path.removeprefix('layer.')}`" if path else "")
    found = "; ".join(
        f"{', '.join(paths)}: {words}".removeprefix(": ") for words, paths in arrays.items()
    )
    if [*checked] == [*ladder] and "" not in checked:
        words = "names each" if checked else "same"
    else:
        words = "; ".join(": ".join(filter(None, one)) for one in ladder.items()) or "same"
    cells = f"`{CASES[name].name}`", f"`{place_of(name, checked)}`", found or "nothing", words
    return f"| {' | '.join(cells)} |"


def place_of(name: str, checked: dict[str, str]) -> str:
    """Return the lines of mindone's source that make the arrays, in the class or elsewhere in its
    module; without such lines, the first line of the class.
    """
    module = importlib.import_module(f"mindone.{CASES[name].module}")
    source, first = inspect.getsourcelines(getattr(module, CASES[name].name))
    places = set()
    for path in checked:
        made = re.compile(rf"\bself\.{re.escape(path.rpartition('.')[2])} = .*Parameter\(")
        text = inspect.getsource(module).splitlines()
        lines = {number for number, line in enumerate(text, 1) if made.search(line)}
        places |= lines.intersection(range(first, first + len(source))) or lines
    short = CASES[name].module.rpartition(".")[2].removeprefix("modeling_")
    return f"{short}:{', '.join(map(str, sorted(places) or [first]))}"


def main() -> None:
    """Print a row for each class, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("classes", nargs="*", metavar="CLASS")
    parser.add_argument("--one", action="store_true", help="in this process, with the whole table")
    parsed = parser.parse_args()
    if parsed.one:
        print(*map(row_of, parsed.classes), sep="\n")
        return
    head = "class", "where", "the check finds", "the ladder"
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|", flush=True)
    for name in parsed.classes or CASES:
        command = [sys.executable, __file__, "--one", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        rows = [line for line in done.stdout.splitlines() if line.startswith("| `")]
        print(rows[-1] if rows else f"| `{name}` |  |  | {done.stderr[-300:]!r} |", flush=True)


if __name__ == "__main__":
    main()
