"""This module finds out how images were prepared for the net that weights are of, and lets a recipe do the same.

A run folder describes its input. timm's files on the Hugging Face hub have a `config.json` beside them. Files of timm's
and torchvision's releases are known by the digits of their SHA-256 in the file's name. Other files say nothing.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resnet_fn.config.fields import as_declared, fault, show_value
from resnet_fn.config.recipe import PREPARATION, Recipe
from resnet_fn.config.settings import changed

# The filter, the image size and the shorter side after resizing of torchvision's and timm's files, and the first eight
# digits of each file's SHA-256. All have ImageNet's mean and standard deviation.
_RELEASED = {
    ("bilinear", 224, 256): """f37072fd b627a593 0676ba61 63fe2227 394f9c45 7cdf4587 95faca4d
        d92f0530 118f1556 08389792 16a12f1b ddb3e555 72679e44""",
    ("bilinear", 224, 232): "11ad3fa6 cd907fc2 f82ba261 1a0047aa 9ba9bcbe",
    ("bicubic", 224, 256): """0757602b 48a79e06 43635321 c6d82d59 f8dcfcaf a26f946b 6c502b37 85ebb6e5 86acaeed 0ebe02e2
        464e36ba 818a1b1b 3b017079 0f9c8644 c1edb0dd bd354e12 8234f177 d733960d e6a097c1 103e99f8 8efdb4bb""",
    ("bicubic", 224, 235): """d63eafa0 b61bd467 46f8f793 82d47d71 14fe96d1 a2746f79 532a802a 1ba180c1 5ba5e060 d01e05b2
        f39db8af e20cff14 a3adc64d 36d3f2aa cdcb52a9 6edb36c7 dc400468 2eee8a7a b4c6978f 0146ab0a b5a91a1d efc76add
        ffa00869 850de0d9""",
    ("bicubic", 160, 168): "40c531c8 a20cabb6 59cae1ef 403fdfad 1db14157 134d4688 3e450271 317ecd56",
    ("bicubic", 176, 195): "001a1197",
    ("bicubic", 256, 269): "2803ffab 5cac0439",
}
_BY_HASH = {digits: row for row, hashes in _RELEASED.items() for digits in hashes.split()}
_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_TIMM_CROP = 0.875  # timm's crop_pct, if a file has none


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preparation:
    """How images were prepared for a net. Values that are not known are empty or 0."""

    place: str  # what says so, for example a file
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    interpolation: str = ""
    image_size: int = 0  # height and width in training, in pixels
    eval_size: int = 0  # height and width in evaluation, in pixels
    crop: float = 0.0  # height and width in evaluation, divided by the shorter side before the centre crop
    of_files: bool = True  # whether the images came from files; images in memory are not cropped in evaluation
    notes: tuple[str, ...] = ()  # lines about what a recipe cannot do alike, or does only if it is asked

    def resize(self, size: int) -> int:
        """Return the shorter side before a crop of `size` pixels, rounded down as in timm."""
        return int(size / self.crop + 1e-6)


def of_run(place: str, spec: Mapping[str, Any], recipe: Mapping[str, Any]) -> Preparation | None:
    """Return a run's preparation. `spec` and `recipe` are the stored `InputSpec` and `Recipe`."""
    if not spec.get("image_size"):  # the net and its data were passed to `fit`
        return None
    size, resize = spec["image_size"], spec["eval_resize"]
    return Preparation(
        place=place,
        mean=tuple(spec["mean"]),
        std=tuple(spec["std"]),
        interpolation=spec.get("interpolation", "bilinear"),
        image_size=recipe["image_size"],
        eval_size=size,
        crop=size / resize if resize else 0.0,
        of_files=bool(resize),
    )


def of_release(path: Path) -> Preparation | None:
    """Return the preparation of a file that torchvision or timm released, or None for other names."""
    digits = re.search(r"-([0-9a-f]{8})\.\w+$", path.name)
    if digits is None or digits[1] not in _BY_HASH:
        return None
    interpolation, size, resize = _BY_HASH[digits[1]]
    sizes = {"image_size": size, "eval_size": size, "crop": size / resize}
    place = f"the hash in the name of {path.name}"
    return Preparation(place=place, interpolation=interpolation, **sizes, **_IMAGENET)


def of_export(place: str, fields: Mapping[str, Any]) -> Preparation:
    """Return the preparation in the metadata of a file that `export` wrote."""
    size, resize = fields["image_size"], fields["eval_resize"]
    values = {name: fields.get(name) for name in ("mean", "std", "interpolation", "image_size")}
    checked = _checked(place, {**values, "eval_size": size})
    return Preparation(place=place, **checked, crop=size / resize if resize else 0.0, of_files=bool(resize))


def of_timm(place: str, config: Mapping[str, Any]) -> Preparation | None:
    """Return the preparation in `config`, which has the entries of timm's `pretrained_cfg`, or None if it has none.

    timm takes the size and the crop in `test_input_size` and `test_crop_pct` only if it is asked to, so a note has them.
    """
    values = {name: config.get(name) or None for name in ("mean", "std", "interpolation")}
    size, crop = _side(config.get("input_size")), config.get("crop_pct") or _TIMM_CROP
    if not size and not any(values.values()):
        return None
    checked = _checked(place, {**values, "image_size": size or None, "eval_size": size or None})
    notes = []
    if size and not _is_share(crop):
        raise ValueError(f"{place}: crop_pct: {crop!r} is not in (0, 1]; correct it, or give weights without this file")
    if (mode := config.get("crop_mode") or "center") != "center":
        notes.append(f"warning: {place} has the crop_mode {mode!r}; this package crops the centre, so scores may differ")
    if config.get("input_size") and not size:
        notes.append(f"warning: {place} has the input_size {config['input_size']}, which is no square, so it is not used")
    test = _side(config.get("test_input_size")) or size
    test_crop = config.get("test_crop_pct") or crop
    if size and (test, test_crop) != (size, crop) and _is_share(test_crop):
        flags = f"--eval-size {test} --eval-resize {math.floor(test / test_crop)}"
        notes.append(f"{place} names another size for tests; to evaluate with it, give {flags}")
    return Preparation(place=place, **checked, crop=crop if size else 0.0, notes=tuple(notes))


def take_over(recipe: Recipe, source: Preparation | None) -> tuple[Recipe, list[str]]:
    """Return the recipe with the preparation of its weights, and lines that say what comes from where.

    A setting that the user typed stays, and decides about others: with `--image-size 128`, evaluation has 128 pixels,
    too, and the crop keeps the weights' share of an image. A recipe with two sizes keeps its size of training.
    """
    if source is None:
        return recipe, []
    typed = {name for name in PREPARATION if name in recipe.typed and getattr(recipe, name)}
    wanted = _wanted(recipe, source, typed)
    taken = {name: value for name, value in wanted.items() if name not in typed}
    if taken.get("eval_size") == taken.get("image_size", recipe.image_size):
        taken["eval_size"] = 0  # as in training
    lines = []
    if shown := [f"{name} {show_value(value)}" for name, value in taken.items() if value]:
        lines.append(f"images are prepared with {', '.join(shown)}, as {source.place} says")
    pairs = [(name, getattr(recipe, name), value) for name, value in wanted.items() if name in typed]
    if kept := [f"{name} {show_value(ours)}, not {show_value(its)}" for name, ours, its in pairs if ours != its]:
        lines.append(f"settings that you gave stay: {'; '.join(kept)}, as {source.place} says")
    return changed(recipe, **taken), [*lines, *source.notes]


def _wanted(recipe: Recipe, source: Preparation, typed: set[str]) -> dict[str, Any]:
    """Return the settings of `source` that concern the recipe's data set, in which the settings `typed` stay."""
    names = ("mean", "std", "interpolation") if recipe.of_files else ("mean", "std")
    wanted: dict[str, Any] = {name: getattr(source, name) for name in names if getattr(source, name)}
    if not source.image_size or source.of_files != recipe.of_files:
        return wanted  # photographs' sizes are not for small images in memory
    two_sizes = recipe.eval_size and "eval_size" not in typed
    if not two_sizes:
        wanted["image_size"] = source.image_size
    if two_sizes or "image_size" not in typed:
        wanted["eval_size"] = source.eval_size
    sizes = {name: wanted[name] for name in ("image_size", "eval_size") if name in {*wanted} - typed}
    size = sizes.get("eval_size", recipe.eval_size) or sizes.get("image_size", recipe.image_size)
    return {**wanted, "eval_resize": source.resize(size)} if source.crop else wanted


def _checked(place: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not None, as a recipe has them. Raises ValueError if a recipe cannot have one."""
    fields = {field.name: field for field in dataclasses.fields(Recipe)}
    checked = {name: as_declared(fields[name], value) for name, value in values.items() if value is not None}
    for name, value in checked.items():
        if wrong := fault(fields[name], value):
            raise ValueError(f"{place}: {wrong}; correct it, or give weights without this file")
    return checked


def _side(size: Any) -> int:
    """Return the height of timm's [channels, height, width], or 0 if there is none or it is not the width."""
    is_square = isinstance(size, list | tuple) and len(size) == 3 and size[1] == size[2]
    return size[1] if is_square and type(size[1]) is int else 0


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value <= 1
