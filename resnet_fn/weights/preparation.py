"""How images were prepared for the net that weights are of, and a recipe that does the same.

A run folder and a file that `export` wrote describe their input. timm's files on the Hugging Face
hub have a `config.json` beside them. Files that torchvision and timm released have the digits of a
hash in their names. Other files do not show it.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resnet_fn.config.recipe import PREPARATION, Recipe
from resnet_fn.config.values import show_value
from resnet_fn.data.sources.files import IMAGENET_MEAN, IMAGENET_STD

# The filter, the image size and the shorter side before the crop, and the first eight digits of the
# SHA-256 of each file of torchvision and timm. All have ImageNet's mean and standard deviation.
_RELEASED = {
    ("bilinear", 224, 256): """f37072fd b627a593 0676ba61 63fe2227 394f9c45 7cdf4587 95faca4d
        d92f0530 118f1556 08389792 16a12f1b ddb3e555 72679e44""",
    ("bilinear", 224, 232): "11ad3fa6 cd907fc2 f82ba261 1a0047aa 9ba9bcbe",
    ("bicubic", 224, 256): """0757602b 48a79e06 43635321 c6d82d59 f8dcfcaf a26f946b 6c502b37
        85ebb6e5 86acaeed 0ebe02e2 464e36ba 818a1b1b 3b017079 0f9c8644 c1edb0dd bd354e12
        8234f177 d733960d e6a097c1 103e99f8 8efdb4bb""",
    ("bicubic", 224, 235): """d63eafa0 b61bd467 46f8f793 82d47d71 14fe96d1 a2746f79 532a802a
        1ba180c1 5ba5e060 d01e05b2 f39db8af e20cff14 a3adc64d 36d3f2aa cdcb52a9 6edb36c7
        dc400468 2eee8a7a b4c6978f 0146ab0a b5a91a1d efc76add ffa00869 850de0d9""",
    ("bicubic", 160, 168): """40c531c8 a20cabb6 59cae1ef 403fdfad 1db14157 134d4688 3e450271
        317ecd56""",
    ("bicubic", 176, 195): "001a1197",
    ("bicubic", 256, 269): "2803ffab 5cac0439",
}
_BY_HASH = {digits: row for row, hashes in _RELEASED.items() for digits in hashes.split()}
_TIMM_CROP = 0.875  # timm's crop_pct, if a file has none
_UNKNOWN = (
    "preparation as in the recipe, because nothing beside these weights describes it; to change "
    "it, "
    "give --mean, --std, --interpolation, --eval-resize"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preparation:
    """How images were prepared for a net. Values that are not known are empty or 0."""

    origin: str  # where this is from, for example a file
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    interpolation: str = ""
    image_size: int = 0  # height and width in training, in pixels
    eval_size: int = 0  # height and width in evaluation, in pixels
    crop: float = 0.0  # height in evaluation, divided by the shorter side before the centre crop
    of_files: bool = True  # False for sets in memory, whose images are not cropped in evaluation
    notes: tuple[str, ...] = ()  # lines about what a recipe cannot do alike, or not without flags

    def resize(self, size: int) -> int:
        """Return the shorter side before a crop of `size` pixels, rounded down as in timm."""
        return int(size / self.crop + 1e-6)

    def as_spec(self) -> dict[str, Any]:
        """Return the values in evaluation, named as in `InputSpec`, so that `of_export` reads
        them.
        """
        spec = {name: getattr(self, name) for name in ("mean", "std", "interpolation")}
        size = self.eval_size
        return {**spec, "image_size": size, "eval_resize": self.resize(size) if self.crop else 0}


def of_run(source: str, spec: Mapping[str, Any], recipe: Mapping[str, Any]) -> Preparation | None:
    """Return a run's preparation. `spec` and `recipe` are its stored `InputSpec` and `Recipe`."""
    return of_export(source, {"interpolation": "bilinear", **spec}, recipe.get("image_size"))


def of_export(
    source: str, spec: Mapping[str, Any], image_size: int | None = None
) -> Preparation | None:
    """Return the preparation in the metadata of a file that `export` wrote.

    `image_size` is the size in training, if it is another one than in evaluation.
    """
    if not spec.get("image_size"):  # the net and its data were passed to `fit`
        return None
    values = {name: spec.get(name) for name in ("mean", "std", "interpolation", "eval_resize")}
    size = spec["image_size"]
    values |= {"image_size": image_size or size, "eval_size": size}
    checked = _checked(source, values)
    resize = checked.pop("eval_resize", 0)
    crop = checked["eval_size"] / resize if resize else 0.0
    return Preparation(origin=source, **checked, crop=crop, of_files=bool(resize))


def of_release(path: Path) -> Preparation | None:
    """Return the preparation for a file that torchvision or timm released, or None for others."""
    digits = re.search(r"-([0-9a-f]{8})\.\w+$", path.name)
    if digits is None or digits[1] not in _BY_HASH:
        return None
    interpolation, size, resize = _BY_HASH[digits[1]]
    return Preparation(
        origin=f"the hash in the name of {path.name}",
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        interpolation=interpolation,
        image_size=size,
        eval_size=size,
        crop=size / resize,
    )


def of_timm(source: str, config: Mapping[str, Any]) -> Preparation | None:
    """Return the preparation in `config`, which has entries as timm's `pretrained_cfg`.

    Returns None if `config` has none of them. timm uses `test_input_size` and `test_crop_pct` only
    if it is asked to, so these are in a note.
    """
    values = {name: config.get(name) for name in ("mean", "std", "interpolation")}
    size = _side(config.get("input_size"))
    unused = {name: config[name] for name in ("input_size", "crop_pct") if config.get(name)}
    if not unused and not any(values.values()):
        return None
    if size and not values["interpolation"]:
        values["interpolation"] = "bicubic"  # as in timm
    checked = _checked(source, {**values, "image_size": size, "eval_size": size})
    crop = _share(source, "crop_pct", config.get("crop_pct") or _TIMM_CROP)
    notes = []
    if (mode := config.get("crop_mode") or "center") != "center":
        notes.append(
            f"warning: {source} has the crop_mode {mode!r}, which is not used; "
            "images are cropped at the centre, so results may differ"
        )
    if unused and not size:
        shown = " and ".join(f"the {name} {value}" for name, value in unused.items())
        notes.append(f"warning: {source} has {shown}, but no square input_size, so it is not used")
    test_size = _side(config.get("test_input_size")) or size
    test_crop = _share(source, "test_crop_pct", config.get("test_crop_pct") or crop)
    if (test_size, test_crop) != (size, crop) and size:
        notes.append(
            f"{' ' * 12}{source} has another size for tests; to evaluate with it, give --eval-size "
            f"{test_size} --eval-resize {math.floor(test_size / test_crop)}"
        )
    return Preparation(origin=source, **checked, crop=crop if size else 0.0, notes=tuple(notes))


def take_over(recipe: Recipe, source: Preparation | None) -> tuple[Recipe, list[str]]:
    """Return the recipe with the preparation of its weights, and lines with what is from where.

    A setting that the user chose stays, and others follow it: with `--image-size 128`,
    evaluation has 128 pixels, too, and the crop keeps the weights' share of an image. A recipe that
    has one size for training and another for evaluation keeps its size for training.
    """
    chosen = chosen_preparation(recipe)
    if source is None:
        return recipe, [_UNKNOWN] if recipe.of_files and not chosen - {"image_size"} else []
    wanted = _wanted(recipe, source, chosen)
    taken = {name: value for name, value in wanted.items() if name not in chosen}
    if taken.get("eval_size") == taken.get("image_size", recipe.image_size):
        taken["eval_size"] = 0  # as in training
    lines = []
    if shown := [f"{name} {show_value(value)}" for name, value in taken.items() if value]:
        lines.append(f"preparation {', '.join(shown)} (from {source.origin})")
    kept = []
    for name, its in wanted.items():
        ours = getattr(recipe, name)
        if name in chosen and ours != its:
            kept.append(f"{name} {show_value(ours)}, not {show_value(its)}")
    if kept:
        lines.append(f"preparation as given: {'; '.join(kept)} (from {source.origin})")
    new = recipe.adapted(**taken)
    if "eval_resize" in chosen and new.eval_resize != recipe.eval_resize:
        raise ValueError(
            f"eval_resize: {recipe.eval_resize} is below the {new.evaluation_size} pixels of "
            f"{source.origin}; give --eval-size, too, or leave it out"
        )
    return new, [*lines, *source.notes]


def chosen_preparation(recipe: Recipe) -> set[str]:
    """Return the names of the settings in `PREPARATION` to which the user gave a value.

    A size of 0 is a value, but an empty mean, deviation or filter stands for that of the weights.
    """
    return {
        name
        for name, value in recipe.chosen_values().items()
        if name in PREPARATION and value not in ("", ())
    }


def _wanted(recipe: Recipe, source: Preparation, chosen: set[str]) -> dict[str, Any]:
    """Return the settings of `source` for the recipe's data set, if the settings `chosen` stay."""
    names = ("mean", "std", "interpolation") if recipe.of_files else ("mean", "std")
    known = {name: getattr(source, name) for name in names}
    wanted: dict[str, Any] = {name: value for name, value in known.items() if value}
    if not source.image_size or source.of_files != recipe.of_files:
        return wanted  # the size of photographs is not for small images in memory
    two_sizes = recipe.eval_size and "eval_size" not in chosen
    if not two_sizes:
        wanted["image_size"] = source.image_size
    if two_sizes or "image_size" not in chosen:
        wanted["eval_size"] = source.eval_size
    if source.crop:
        after = {**vars(recipe), **{name: wanted[name] for name in wanted.keys() - chosen}}
        wanted["eval_resize"] = source.resize(after["eval_size"] or after["image_size"])
    return wanted


def _checked(source: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not empty or 0, converted to the types of a recipe's settings.

    Raises ValueError if a value is not allowed for the setting.
    """
    stated = {name: value for name, value in values.items() if value}
    try:
        return {name: Recipe.declarations[name].checked(value) for name, value in stated.items()}
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _side(size: Any) -> int:
    """Return the height in timm's [channels, height, width], or 0 if it is not the width, too."""
    is_square = isinstance(size, list | tuple) and len(size) == 3 and size[1] == size[2]
    return size[1] if is_square and isinstance(size[1], int) else 0


def _share(source: str, name: str, value: Any) -> float:
    if isinstance(value, int | float) and 0 < value <= 1:
        return float(value)
    raise ValueError(f"{source}: {name}: {value!r} is not in (0, 1]")
