"""MindCV's nets against torchvision's or timm's of the same name: does the ladder call them the same function?

Each net runs in a process of its own: small random images, copied weights, one update in float32 on the CPU. Prints a
Markdown table (docs/audit.md). Beside resnet_fn[torch] it needs mindcv, torchvision and timm, all importable; MindCV's
weights are not downloaded.

    python scripts/audit_mindcv.py                        # every net of NETS
    python scripts/audit_mindcv.py resnet18 convnext_tiny
    python scripts/audit_mindcv.py --show resnet18        # the ladder's own output, of one net
"""

import argparse
import dataclasses
import importlib
import importlib.metadata
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLASSES, IMAGES = 10, 4


@dataclasses.dataclass
class Net:
    """One net of MindCV's and what it is held against.

    Attributes:
        family: of architectures.
        reference: "torchvision resnet18", or "timm regnetx_002".
        size: height and width of the images [pixels].
        options, reference_options: further arguments of both constructors.
        corrections: what matching does not find, as --map has it.
    """

    family: str
    reference: str
    size: int = 64
    options: dict = dataclasses.field(default_factory=dict)
    reference_options: dict = dataclasses.field(default_factory=dict)
    corrections: dict = dataclasses.field(default_factory=dict)


NETS = {
    "resnet18": Net("ResNet", "torchvision resnet18"),
    "resnet50": Net("ResNet", "torchvision resnet50"),
    "resnext50_32x4d": Net("ResNeXt", "torchvision resnext50_32x4d"),
    "seresnet18": Net("SE-ResNet", "timm legacy_seresnet18"),
    "seresnext26_32x4d": Net("SE-ResNeXt", "timm legacy_seresnext26_32x4d"),
    "densenet121": Net("DenseNet", "torchvision densenet121"),
    "vgg11": Net("VGG", "torchvision vgg11"),
    "squeezenet1_1": Net("SqueezeNet", "torchvision squeezenet1_1"),
    "googlenet": Net("GoogLeNet", "torchvision googlenet", 64, {}, {"aux_logits": False, "init_weights": True}),
    "inception_v3": Net("Inception", "torchvision inception_v3", 96, {"aux_logits": False}, {"aux_logits": False}),
    "mobilenet_v2_100": Net("MobileNet V2", "torchvision mobilenet_v2"),
    "mobilenet_v3_small_100": Net("MobileNet V3", "torchvision mobilenet_v3_small"),
    "mnasnet_050": Net("MnasNet", "torchvision mnasnet0_5"),
    "shufflenet_v2_x0_5": Net("ShuffleNet V2", "torchvision shufflenet_v2_x0_5"),
    "efficientnet_b0": Net("EfficientNet", "torchvision efficientnet_b0"),
    "regnet_x_400mf": Net("RegNet", "torchvision regnet_x_400mf"),
    "regnet_y_400mf": Net("RegNet", "torchvision regnet_y_400mf"),
    "convnext_tiny": Net("ConvNeXt", "torchvision convnext_tiny"),
    "convnextv2_atto": Net("ConvNeXt V2", "timm convnextv2_atto"),
    "vit_b_32_224": Net("ViT", "torchvision vit_b_32", 224),
    "swin_tiny": Net("Swin", "torchvision swin_t", 224),
    "mlp_mixer_s_p32": Net("MLP-Mixer", "timm mixer_s32_224", 224),
    "poolformer_s12": Net("PoolFormer", "timm poolformer_s12"),
    "repvgg_a0": Net("RepVGG", "timm repvgg_a0"),
    "ghostnet_050": Net("GhostNet", "timm ghostnet_050"),
    "mixnet_s": Net("MixNet", "timm mixnet_s"),
    "resnest14": Net("ResNeSt", "timm resnest14d"),
    "skresnet18": Net("SKNet", "timm skresnet18"),
    "res2net50": Net("Res2Net", "timm res2net50_26w_4s"),
    "rexnet_10": Net("ReXNet", "timm rexnet_100"),
    "mobilevit_xx_small": Net("MobileViT", "timm mobilevit_xxs"),
    "pvt_v2_b0": Net("PVT V2", "timm pvt_v2_b0", 224),
    "convit_tiny": Net("ConViT", "timm convit_tiny", 224),
}


def ladder_of(name):
    """Hold one net against its reference; returns the Ladder."""
    import numpy as np
    import torch

    from resnet_fn import recipes
    from resnet_fn.parity.corrections import read_map
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
    net = mindcv.create_model(name, num_classes=CLASSES, **chosen.options)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((IMAGES, 3, chosen.size, chosen.size)).astype(np.float32)
    recipe = dataclasses.replace(
        recipes.recipe("imagenet_resnet50_v1"), batch_size=IMAGES, learning_rate=0.01, min_learning_rate=0.0
    )
    corrections = None
    if chosen.corrections:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(chosen.corrections, file)
            file.flush()
            corrections = read_map(file.name)
    batch = (images, rng.integers(0, CLASSES, IMAGES).astype(np.int32))
    return compare_step(net, reference, [batch], recipe, corrections=corrections)


def row_of(name):
    """What the table says of one net."""
    from resnet_fn.parity.stages import INITIALISATION, WEIGHTS

    ladder = ladder_of(name)
    stage, layer = ladder.first_computed, ladder.first_layer
    drawn = next((one for one in ladder.stages if one.name == INITIALISATION), None)
    matched = not any(one.name == WEIGHTS and one.failed for one in ladder.stages)
    how = {"names": "by names"}.get(ladder.names.how, "by structure")
    causes = [f"`{layer.name}`: {words}" for words in layer.hints] if layer else []
    if stage:
        causes += stage.hints[:2]
    return {
        "same": "yes" if not stage else "no",
        "weights": ("with --map" if NETS[name].corrections else how) if matched else "no",
        "where": "" if not stage else stage.name if not layer else f"{stage.name}, `{layer.name}`",
        "causes": causes,
        "settings": _short(ladder.notes),
        "initialisation": "" if drawn is None else "differs" if drawn.verdict == "DIFFERS" else "same",
    }


def _short(notes):
    groups = {}
    for note in notes:
        layer, _, words = note.partition(": ")
        groups.setdefault(words, []).append(layer)
    return [f"{words} ({len(names)} layers)" for words, names in groups.items()]


def table(rows):
    """The Markdown table of {name: row}."""
    lines = ["| net | held against | same function | weights | initialisation | first differs | what the ladder says |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        words = "<br>".join([*row["causes"], *[f"setting: {one}" for one in row["settings"]]])
        cells = [f"`{name}`", NETS[name].reference, row["same"], row["weights"], row["initialisation"], row["where"]]
        lines.append(f"| {' | '.join([*cells, words])} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NET", help=f"default all of: {', '.join(NETS)}")
    parser.add_argument("--show", metavar="NET", help="print the ladder's own table of one net")
    parser.add_argument("--json", metavar="FILE", help="keep the rows here, and go on from it")
    parser.add_argument("--one", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in [*options.names, *filter(None, [options.show])] if name not in NETS]
    if unknown:
        parser.error(f"{unknown[0]} is not among NETS: {', '.join(NETS)}")
    if options.show:
        from resnet_fn.parity.report import name_map
        from resnet_fn.parity.report import table as ladder_table

        ladder = ladder_of(options.show)
        print(name_map(ladder), ladder_table(ladder), sep="\n")
        return
    if options.one:
        Path(options.one).write_text(json.dumps(row_of(options.names[0])))
        return
    kept = Path(options.json) if options.json else None
    rows = json.loads(kept.read_text()) if kept and kept.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or NETS:
            began = time.perf_counter()
            out = Path(folder, name)
            command = [sys.executable, str(Path(__file__).resolve()), name, "--one", str(out)]
            ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if ended.returncode or not out.exists():
                print(f"{name}: {(ended.stderr.strip() or 'no output').splitlines()[-1]}", file=sys.stderr)
                continue
            rows[name] = json.loads(out.read_text())
            print(f"{name}: {rows[name]['same']}, {time.perf_counter() - began:.0f} s", file=sys.stderr)
            if kept:
                kept.write_text(json.dumps(rows, indent=1))
    packages = ("mindcv", "mindspore", "torch", "torchvision", "timm")
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages))
    print(table({name: rows[name] for name in NETS if name in rows}))


if __name__ == "__main__":
    main()
