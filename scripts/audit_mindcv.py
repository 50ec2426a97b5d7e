"""MindCV's nets against torchvision's or timm's of the same name: does the ladder call them the
same function?

Each net runs in a process of its own: small random images, copied weights, one update in float32 on
the CPU. Prints a Markdown table (docs/audit.md). Beside resnet_fn[torch] it needs mindcv,
torchvision and timm, all importable; MindCV's weights are not downloaded.

    python scripts/audit_mindcv.py                        # every net of NETS
    python scripts/audit_mindcv.py resnet18 convnext_tiny
    python scripts/audit_mindcv.py --keep audit           # and the ladder's own output, audit/NET.txt
"""

import argparse
import contextlib
import dataclasses
import importlib
import importlib.metadata
import inspect
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLASSES, IMAGES = 10, 4


@dataclasses.dataclass
class Net:
    """One net of MindCV and the net that it is compared with.

    Attributes:
        family: of architectures.
        reference: "torchvision resnet18", or "timm regnetx_002".
        size: height and width of the images [pixels].
        options, reference_options: further arguments of both constructors.
        corrections: pairs that matching misses, as in --map.
        fixes: of FIXES; with them the net is run once more, to show that nothing else differs.
    """

    family: str
    reference: str
    size: int = 64
    options: dict = dataclasses.field(default_factory=dict)
    reference_options: dict = dataclasses.field(default_factory=dict)
    corrections: dict = dataclasses.field(default_factory=dict)
    fixes: tuple = ()


def _centred(given):
    """A layer's padding on both sides, as torch's: at stride 2 `same` pads even images right and
    below only.
    """
    size = given["kernel_size"]
    size = size if isinstance(size, int) else size[0]
    return {"pad_mode": "pad", "padding": size // 2} if given["pad_mode"] == "same" else {}


# What is given otherwise to a layer's constructor while the net is built: words, class, (its
# arguments) -> changes.
FIXES = {
    "max pool": ("max pools with padding on both sides", "MaxPool2d", _centred),
    "ceil": (
        "max pools with `ceil_mode=True`",
        "MaxPool2d",
        lambda given: {"pad_mode": "pad", "padding": 0, "ceil_mode": True},
    ),
    "conv": ("convolutions with padding on both sides", "Conv2d", _centred),
    "stem": (
        "its first convolution without padding",
        "Conv2d",
        lambda given: {"padding": 0} if given["in_channels"] == 3 else {},
    ),
    "norm2d": (
        "`BatchNorm2d(eps=1e-3, momentum=0.99)`",
        "BatchNorm2d",
        lambda given: {"eps": 1e-3, "momentum": 0.99},
    ),
    "norm2d eps": ("`BatchNorm2d(eps=1e-3)`", "BatchNorm2d", lambda given: {"eps": 1e-3}),
    "gelu": ("`GELU(approximate=False)`", "GELU", lambda given: {"approximate": False}),
    "norm 1e-6": ("`LayerNorm(epsilon=1e-6)`", "LayerNorm", lambda given: {"epsilon": 1e-6}),
    "norm 1e-5": ("`LayerNorm(epsilon=1e-5)`", "LayerNorm", lambda given: {"epsilon": 1e-5}),
}


@contextlib.contextmanager
def fixed(names):
    """While a net is built, its layers are made with what FIXES say."""
    from mindspore import nn

    originals = {}
    for name in names:
        _, class_name, changes = FIXES[name]
        class_ = getattr(nn, class_name)
        original = class_.__init__
        originals.setdefault(class_, original)

        def init(self, *given, _original=original, _changes=changes, **named):
            arguments = inspect.signature(_original).bind(self, *given, **named)
            arguments.apply_defaults()
            known = dict(arguments.arguments)
            rest = known.pop("kwargs", {})
            _original(**{**known, **rest, **_changes(known)})

        class_.__init__ = init
    try:
        yield
    finally:
        for class_, original in originals.items():
            class_.__init__ = original


def swin_map():
    """MindCV has q, k and v in three layers, torchvision in one."""
    found = {}
    for stage, (blocks, width) in enumerate(((2, 96), (2, 192), (6, 384), (2, 768))):
        for block in range(blocks):
            ours, theirs = (
                f"layers.{stage}.blocks.{block}.attn",
                f"features.{2 * stage + 1}.{block}.attn",
            )
            for leaf in ("weight", "bias"):
                for part, name in enumerate("qkv"):
                    rows = [part * width, (part + 1) * width]
                    found[f"{ours}.{name}.{leaf}"] = {"from": f"{theirs}.qkv.{leaf}", "rows": rows}
            found[f"{ours}.proj"] = f"{theirs}.proj"
    return found


NETS = {
    "resnet18": Net("ResNet", "torchvision resnet18", fixes=("max pool",)),
    "resnet50": Net("ResNet", "torchvision resnet50", fixes=("max pool",)),
    "resnext50_32x4d": Net("ResNeXt", "torchvision resnext50_32x4d", fixes=("max pool",)),
    "seresnet18": Net("SE-ResNet", "timm seresnet18", fixes=("max pool",)),
    "seresnext26_32x4d": Net("SE-ResNeXt", "timm legacy_seresnext26_32x4d"),
    "densenet121": Net("DenseNet", "torchvision densenet121"),
    "squeezenet1_1": Net("SqueezeNet", "torchvision squeezenet1_1", fixes=("stem", "ceil")),
    "googlenet": Net(
        "GoogLeNet", "torchvision googlenet", 64, {}, {"aux_logits": False, "init_weights": True}
    ),
    "mobilenet_v2_100": Net("MobileNet V2", "torchvision mobilenet_v2"),
    "mobilenet_v3_small_100": Net(
        "MobileNet V3", "torchvision mobilenet_v3_small", fixes=("conv", "norm2d")
    ),
    "mnasnet_050": Net("MnasNet", "torchvision mnasnet0_5"),
    "shufflenet_v2_x0_5": Net(
        "ShuffleNet V2", "torchvision shufflenet_v2_x0_5", fixes=("max pool",)
    ),
    "efficientnet_b0": Net("EfficientNet", "torchvision efficientnet_b0", fixes=("conv",)),
    "regnet_x_400mf": Net("RegNet", "timm regnetx_004"),
    "regnet_y_400mf": Net("RegNet", "torchvision regnet_y_400mf"),
    "convnext_tiny": Net("ConvNeXt", "torchvision convnext_tiny", fixes=("gelu",)),
    "convnextv2_atto": Net("ConvNeXt V2", "timm convnextv2_atto", fixes=("gelu",)),
    "vit_b_32_224": Net(
        "ViT",
        "torchvision vit_b_32",
        224,
        corrections={"pos_embed": "encoder.pos_embedding"},
        fixes=("gelu", "norm 1e-6"),
    ),
    "swin_tiny": Net(
        "Swin", "torchvision swin_t", 224, corrections=swin_map(), fixes=("gelu", "norm 1e-5")
    ),
    "mlp_mixer_s_p32": Net("MLP-Mixer", "timm mixer_s32_224", 224, fixes=("gelu", "norm 1e-6")),
    "poolformer_s12": Net("PoolFormer", "timm poolformer_s12"),
    "repvgg_a0": Net("RepVGG", "timm repvgg_a0"),
    "ghostnet_050": Net("GhostNet", "timm ghostnet_050"),
    "mixnet_s": Net("MixNet", "timm mixnet_s"),
    "resnest14": Net("ResNeSt", "timm resnest14d"),
    "skresnet18": Net("SKNet", "timm skresnet18", fixes=("max pool",)),
    "res2net50": Net("Res2Net", "timm res2net50_26w_4s"),
    "rexnet_10": Net("ReXNet", "timm rexnet_100"),
    "mobilevit_xx_small": Net("MobileViT", "timm mobilevit_xxs"),
    "pvt_v2_b0": Net("PVT V2", "timm pvt_v2_b0", 224),
    "convit_tiny": Net("ConViT", "timm convit_tiny", 224),
}


def ladder_of(name, fixes=(), forward=False):
    """Hold one net, with these of FIXES, against its reference; returns the Ladder."""
    import numpy as np
    import torch

    from resnet_fn import recipes
    from resnet_fn.parity.pair.map_file import read_map
    from resnet_fn.parity.replay import compare_step
    from resnet_fn.runtime import process

    chosen = NETS[name]
    process.start("CPU", 1)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    import mindcv
    import mindspore

    mindspore.set_seed(1)
    package, function = chosen.reference.split()
    if package == "timm":
        reference = importlib.import_module("timm").create_model(
            function, num_classes=CLASSES, **chosen.reference_options
        )
    else:
        models = importlib.import_module("torchvision.models")
        reference = models.get_model(function, num_classes=CLASSES, **chosen.reference_options)
    with fixed(fixes):
        net = mindcv.create_model(name, num_classes=CLASSES, **chosen.options)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((IMAGES, 3, chosen.size, chosen.size)).astype(np.float32)
    recipe = recipes.recipe("imagenet_resnet50_v1").changed(
        batch_size=IMAGES,
        learning_rate=0.01,
        min_learning_rate=0.0,
    )
    corrections = None
    if chosen.corrections:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(chosen.corrections, file)
            file.flush()
            corrections = read_map(file.name)
    batch = (images, rng.integers(0, CLASSES, IMAGES).astype(np.int32))
    if forward:
        return forward_ladder(net, reference, images, corrections)
    return compare_step(net, reference, [batch], recipe, corrections=corrections)


def forward_ladder(net, reference, images, corrections):
    """The ladder's first rungs: initial weights, then both nets layer by layer with equal ones; no
    update.
    """
    import copy

    import mindspore
    import numpy as np
    import torch

    from resnet_fn.parity.compare.initial import initial_stage
    from resnet_fn.parity.compare.layers import compare_layers
    from resnet_fn.parity.compare.notes import settings_notes
    from resnet_fn.parity.compare.stage import Stage
    from resnet_fn.parity.ladder import Ladder
    from resnet_fn.parity.pair.matching import Outline, match, shapes_of
    from resnet_fn.parity.record import mindspore_cell, mindspore_layers, torch_layers
    from resnet_fn.parity.record.rates import without_dropout
    from resnet_fn.parity.record.torch_layers import layers_with_rounding
    from resnet_fn.parity.record.torch_module import state
    from resnet_fn.parity.record.torch_prepared import prepare_reference
    from resnet_fn.parity.trace.difference import difference, relative_error
    from resnet_fn.parity.trace.layer import LAYER_TOLERANCE
    from resnet_fn.parity.trace.stages import WEIGHTS, StageId

    drawn, drawn_there = mindspore_cell.state(net), state(reference)
    with without_dropout(reference.named_modules()), without_dropout(net.cells_and_names()):
        reference = copy.deepcopy(reference)
        prepare_reference(reference, images, 0)
        theirs = {
            mode: layers_with_rounding(reference, images, mode == "train", "float32")[0]
            for mode in ("eval", "train")
        }
        weights = state(reference)
        roles, their_roles = mindspore_layers.roles_of(net), torch_layers.roles_of(reference)
        layers = mindspore_layers.layers_of(net, images, False)
        names = match(
            Outline(shapes_of(drawn), layers, roles["tied"], roles["constants"]),
            Outline(
                shapes_of(weights), theirs["eval"], their_roles["tied"], their_roles["constants"]
            ),
            corrections,
        )
        if names.problems:
            stage = Stage(WEIGHTS, failed="; ".join(names.problems), hints=list(names.problems))
            return Ladder([stage], [], names, [])
        renamed = names.rename(drawn_there)
        trained = [name for name in roles["trainable"] if name in renamed]
        stages = [initial_stage([drawn], [{name: renamed[name] for name in trained}])]
        mindspore_cell.assign(net, names.rename(weights))
        ours = {
            mode: mindspore_layers.layers_of(net, images, mode == "train")
            for mode in ("eval", "train")
        }
        layers = compare_layers(ours, theirs, names.layers)
        for mode in ("eval", "train"):
            net.set_train(mode == "train")
            twin = copy.deepcopy(reference).train(mode == "train")
            exact = copy.deepcopy(twin).double()
            with torch.no_grad():
                logits = [
                    twin(torch.from_numpy(images)).numpy(),
                    exact(torch.from_numpy(images).double()).numpy(),
                ]
            found = np.asarray(net(mindspore.Tensor(images)).asnumpy(), np.float64)
            rounding = relative_error(logits[0], logits[1])
            one = difference(
                "logits", found, logits[0], tolerance=LAYER_TOLERANCE, rounding=rounding
            )
            stages.append(Stage(StageId("forward", mode), [one]))
    return Ladder(stages, layers, names, settings_notes(ours["eval"], theirs["eval"], names.layers))


def differs(ladder):
    """Whether anything that is computed does, initial weights apart: a stage, or a layer that the
    logits hide.
    """
    return bool(ladder.first_computed or ladder.first_layer)


def row_of(name, ladder, forward):
    """What the table says of one net."""
    from resnet_fn.parity.show.titles import title_of_stage
    from resnet_fn.parity.trace.stages import INITIALISATION, WEIGHTS

    stage, layer = ladder.first_computed, ladder.first_layer
    drawn = next((one for one in ladder.stages if one.id == INITIALISATION), None)
    matched = not any(one.id == WEIGHTS and one.failed for one in ladder.stages)
    how = {"names": "by names"}.get(ladder.names.how, "by structure")
    causes = [f"`{layer.name}`: {words}" for words in layer.hints] if layer else []
    if stage:
        causes += stage.hints[:2]
    return {
        "same": "no" if differs(ladder) else "yes, forward" if forward else "yes, one update",
        "weights": ("with --map" if NETS[name].corrections else how) if matched else "no",
        "where": ", ".join(
            [*([title_of_stage(stage)] if stage else []), *([f"`{layer.name}`"] if layer else [])]
        ),
        "causes": causes,
        "settings": _short(ladder.settings),
        "initialisation": ""
        if drawn is None
        else "differs"
        if drawn.verdict == "DIFFERS"
        else "same",
    }


def _short(notes):
    groups = {}
    for note in notes:
        layer, _, words = note.partition(": ")
        groups.setdefault(words, []).append(layer)
    return [f"{words} ({len(names)} layers)" for words, names in groups.items()]


def table(rows):
    """The Markdown table of {name: row}."""
    head = (
        "net",
        "compared with",
        "same function",
        "weights",
        "initialisation",
        "first differs",
        "what the ladder says",
    )
    lines = [f"| {' | '.join((*head, 'the same with'))} |", "|---" * 8 + "|"]
    for name, row in rows.items():
        told = [cause.partition(": ")[2] for cause in row["causes"]]
        settings = [
            f"setting: {one}"
            for one in row["settings"]
            if not any(one.startswith(words) for words in told)
        ]
        words = "<br>".join([*row["causes"], *settings])
        cells = [
            f"`{name}`",
            NETS[name].reference,
            row["same"],
            row["weights"],
            row["initialisation"],
            row["where"],
        ]
        cells += [words, row.get("fixed", "")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def run_one(name, folder, forward):
    """Write one net's row and the ladder's own output into a folder, as NAME.json and NAME.txt."""
    from resnet_fn.parity.show.table import name_map
    from resnet_fn.parity.show.table import table as ladder_table

    row = {}
    for fixes in ((), NETS[name].fixes) if NETS[name].fixes else ((),):
        ladder = ladder_of(name, fixes, forward)
        file = folder / f"{name}{'.fixed' if fixes else ''}.txt"
        file.write_text(f"{name_map(ladder)}\n{ladder_table(ladder)}\n")
        row = (
            {**row, "fixed": "no" if differs(ladder) else ", ".join(words_of(fixes))}
            if fixes
            else row_of(name, ladder, forward)
        )
    (folder / f"{name}.json").write_text(json.dumps(row))


def words_of(fixes):
    """What FIXES say of these."""
    return [FIXES[name][0] for name in fixes]


def run(names, folder, forward):
    """Run those nets that the folder does not have, one process each."""
    for name in names:
        if (folder / f"{name}.json").exists():
            continue
        began = time.perf_counter()
        # MindSpore writes beside it what it could not compile
        with tempfile.TemporaryDirectory() as place:
            command = [
                sys.executable,
                str(Path(__file__).resolve()),
                name,
                "--one",
                "--keep",
                str(folder),
            ]
            command += ["--forward"] if forward else []
            ended = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if (folder / f"{name}.json").exists():
            print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
        else:
            error = (ended.stderr.strip() or "no output").splitlines()
            print(
                f"{name}: {next((one for one in reversed(error) if 'Error' in one), error[-1])}",
                file=sys.stderr,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NET", help=f"default all of: {', '.join(NETS)}"
    )
    parser.add_argument(
        "--keep",
        metavar="FOLDER",
        help="keep each net's result here; what is there is not run again",
    )
    parser.add_argument(
        "--forward", action="store_true", help="layer by layer in both modes, without an update"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.names or list(NETS)
    unknown = [name for name in names if name not in NETS]
    if unknown:
        parser.error(f"{unknown[0]} is not among {', '.join(NETS)}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(options.keep or place).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if options.one:
            run_one(names[0], folder, options.forward)
            return
        run(names, folder, options.forward)
        rows = {
            name: json.loads(file.read_text())
            for name in names
            if (file := folder / f"{name}.json").exists()
        }
    packages = ("mindcv", "mindspore", "torch", "torchvision", "timm")
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages))
    print(table(rows))


if __name__ == "__main__":
    main()
