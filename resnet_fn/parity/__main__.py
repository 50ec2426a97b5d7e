"""python -m resnet_fn.parity: prove, stage by stage, that a net and its training step compute what PyTorch computes."""

import dataclasses
import importlib.util
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnet_fn import recipes
from resnet_fn.config import cli
from resnet_fn.config.hints import near_path
from resnet_fn.config.recipe import Recipe
from resnet_fn.recipes.load import load_recipe
from resnet_fn.runtime.extras import import_extra

_EXAMPLES = """examples:
  python -m resnet_fn.parity --model resnet50 --image-size 64 --batch-size 4 --steps 5
  python -m resnet_fn.parity --model resnet8 --steps 20 --json ladder.json --figure ladder.png
  python -m resnet_fn.parity --reference torch_net.py:build --net ported.py:build

exit code 0: both compute the same; 1: they do not, and the output says where it starts.
"""


def _parser() -> cli.Parser:
    parser = cli.Parser("parity", "Compare a net and one training step with PyTorch, stage by stage.", _EXAMPLES, "")
    group = parser.add_argument_group("what is compared")
    group.add_argument("--model", default="resnet8", metavar="NAME", help="a net of this package; default resnet8")
    group.add_argument("--net", metavar="FILE:FUNCTION", help="your own: a function that returns a MindSpore Cell")
    group.add_argument(
        "--reference",
        metavar="FILE:FUNCTION",
        help="a function that returns a torch Module; default --model in PyTorch",
    )
    group.add_argument(
        "--recipe",
        default="digits",
        metavar="NAME",
        help=f"a file, or one of {', '.join(recipes.RECIPES)}",
    )
    group.add_argument(
        "--no-initialisation", action="store_true", help="leave out initialisation (nets that load trained weights)"
    )
    group.add_argument(
        "--data", nargs="*", metavar="JPEG", help="decoding and preprocessing too; on generated JPEGs if none is named"
    )
    group = parser.add_argument_group("on what")
    numbers = {
        "steps": (5, "updates to follow"),
        "batch-size": (4, "samples of one update"),
        "image-size": (32, "height and width [pixels]"),
        "in-channels": (3, "channels of the images"),
        "num-classes": (10, "classes"),
        "accumulate": (1, "micro-batches of one update"),
        "seed": (0, "of weights, statistics and images"),
    }
    for name, (default, meaning) in numbers.items():
        group.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{meaning}; default {default}")
    group.add_argument(
        "--learning-rate", type=float, metavar="X", help="peak; default the recipe's, times batch size / the recipe's"
    )
    cli.add_device_flags(parser)
    group = parser.add_argument_group("what is written")
    group.add_argument("--json", metavar="FILE", help="write everything, every array and layer")
    group.add_argument("--figure", metavar="FILE", help="draw the error of every layer; needs resnet_fn[plots]")
    return parser


def load_function(place: str, flag: str) -> Any:
    """Import FILE and return its FUNCTION, from "path/to/file.py:function".

    Raises:
        UsageError: the file or the function is not there.
    """
    path, _, name = place.rpartition(":")
    if not path or not name:
        raise cli.UsageError(f"{flag}: {place!r} is not FILE:FUNCTION; give for example nets/mine.py:build")
    if not Path(path).is_file():
        raise cli.UsageError(f"{flag}: there is no file {path}; {near_path(path, 'give FILE.py:FUNCTION')}")
    spec = importlib.util.spec_from_file_location(f"resnet_fn_user_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise cli.UsageError(f"{flag}: {path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # jit looks functions up by their module
    sys.path.append(str(Path(path).resolve().parent))  # for what the file imports from beside it
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise cli.UsageError(f"{flag}: {path} has no function {name!r}")
    return getattr(module, name)


def ladder_recipe(name: str, batch_size: int, learning_rate: float | None) -> Recipe:
    """The recipe at another batch size: the learning rate goes with the batch, as Goyal et al., arXiv 1706.02677.

    A learning rate for 64 samples applied to 4 makes any net chaotic, and rounding is then all that one sees.
    """
    recipe = load_recipe(name).checked()
    scale = batch_size / recipe.batch_size
    return dataclasses.replace(
        recipe,
        batch_size=batch_size,
        learning_rate=learning_rate or recipe.learning_rate * scale,
        min_learning_rate=min(recipe.min_learning_rate * scale, learning_rate or float("inf")),
    )


def main(arguments: Sequence[str]) -> int:
    """Check the flags, then compare both nets. Returns 1 if they differ."""
    parsed = _parser().parse(arguments)
    for flag in ("steps", "batch_size", "image_size", "in_channels", "num_classes", "accumulate"):
        if getattr(parsed, flag) < 1:
            raise cli.UsageError(f"--{flag.replace('_', '-')}: {getattr(parsed, flag)} is too small; give 1 or more")
    if bool(parsed.net) and not parsed.reference:
        raise cli.UsageError("--net: needs --reference FILE:FUNCTION, the torch module that it was ported from")
    with cli.usage_errors():
        recipe = ladder_recipe(parsed.recipe, parsed.batch_size, parsed.learning_rate)
    net_function = load_function(parsed.net, "--net") if parsed.net else None
    reference_function = load_function(parsed.reference, "--reference") if parsed.reference else None
    if parsed.figure:
        import_extra("matplotlib", "--figure", "plots")
    files = []
    for name in parsed.data or ():
        try:
            files.append(Path(name).read_bytes())
        except OSError as error:
            raise cli.UsageError(f"--data: {name} cannot be read ({error.strerror}); name JPEG files") from None
    return _compare(parsed, recipe, net_function, reference_function, files)


def _compare(parsed: Any, recipe: Recipe, net_function: Any, reference_function: Any, files: Sequence[bytes]) -> int:
    import mindspore

    from resnet_fn.models import create_model
    from resnet_fn.parity import pixels, report
    from resnet_fn.parity.ladder import compare_step
    from resnet_fn.parity.trace import make_batches
    from resnet_fn.runtime import process

    torch = import_extra("torch", "the parity ladder")
    began = time.perf_counter()
    process.start(parsed.device, parsed.threads)
    mindspore.set_seed(parsed.seed + 1)  # MindSpore reads 0 as "no seed given"
    torch.manual_seed(parsed.seed)
    # Two pools of threads that spin for the same cores slow each other down tenfold; torch's work is the smaller.
    torch.set_num_threads(max(1, process.cpu_count() // 2))
    data = [] if parsed.data is None else pixels.data_stage(files)
    if data:
        print(pixels.table(data), flush=True)
    shape = {
        "num_classes": parsed.num_classes,
        "in_channels": parsed.in_channels,
        "stem": recipe.stem,
        "norm": recipe.norm,
        "image_size": parsed.image_size,
    }
    reference = reference_function() if reference_function else _reference(parsed.model, shape)
    net = net_function() if net_function else create_model(parsed.model, initialisation=recipe.initialisation, **shape)
    batches = make_batches(
        parsed.steps, parsed.batch_size, parsed.in_channels, parsed.image_size, parsed.num_classes, parsed.seed
    )
    ladder = compare_step(
        net,
        reference,
        batches,
        recipe,
        accumulate=parsed.accumulate,
        seed=parsed.seed,
        initialisation=not parsed.no_initialisation and recipe.initialisation == "torchvision",
    )
    print(report.name_map(ladder))
    print(report.table(ladder))
    print(f"{parsed.steps} updates of {parsed.batch_size} images, {time.perf_counter() - began:.0f} s")
    if parsed.json:
        report.write_json(ladder, parsed.json, data)
    if parsed.figure:
        report.write_plot(ladder, parsed.figure, f"{parsed.net or parsed.model}: error of every layer's output")
    return 0 if ladder.agrees and all(item.passes for item in data) else 1


def _reference(model: str, shape: dict[str, Any]) -> Any:
    """Torchvision's own net where it is installed and has this one; else the one that the package carries."""
    plain = shape["in_channels"] == 3 and not shape["stem"] and shape["norm"] == "batch"
    if plain and importlib.util.find_spec("torchvision"):
        import torchvision  # type: ignore[import-not-found,unused-ignore]

        if hasattr(torchvision.models, model):
            return getattr(torchvision.models, model)(num_classes=shape["num_classes"])
    from resnet_fn.parity.torch_side.reference import reference_net

    return reference_net(model, **shape)


if __name__ == "__main__":
    cli.run("parity", main)
