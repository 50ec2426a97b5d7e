"""Of which net a weight file is: from its name, what it contains beside arrays, and `config.json`.

timm's anti-aliased nets have a plain net's arrays, but blur or average pixels before a stride
leaves some out. So the arrays do not show of which of the two nets they are.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.tensor_file import read_metadata
from resnet_fn.config.reading import read_json
from resnet_fn.config.wording import first_line
from resnet_fn.models import MODELS
from resnet_fn.weights.preparation import Preparation, of_export, of_release, of_timm
from resnet_fn.weights.torch_file import is_torch_file, read_torch_settings

# timm's anti-aliased nets, by model and stem of the net of this package that has the same arrays.
ANTIALIASED = {
    ("resnet18", "imagenet"): "resnetblur18",
    ("resnet34", "d"): "resnetaa34d",
    ("resnet50", "imagenet"): "resnetaa50 and resnetblur50",
    ("resnet50", "d"): "resnetaa50d and resnetblur50d",
    ("resnet101", "d"): "resnetaa101d and resnetblur101d",
    ("se_resnet50", "d"): "seresnetaa50d",
}
_NET_NAME = re.compile(
    r"(se[-_]?)?resnex?t[-_]?(?P<antialiasing>aa|blur)?[-_]?\d+d?",
    re.IGNORECASE,
)
# timm's settings that change what a net computes but not its arrays, and values of plain nets.
_PLAIN: dict[str, Sequence[Any]] = {
    "aa_layer": (None, ""),
    "act_layer": (None, "relu"),
    "global_pool": (None, "avg"),
    "output_stride": (None, 32),
    "replace_stem_pool": (None, False),
}


@dataclasses.dataclass(frozen=True)
class Origin:
    """What is known of a weight file besides its arrays."""

    is_named: bool  # whether the net's name in timm or torchvision is known
    difference: str  # how the net differs from this package's with the same arrays, or ""
    preparation: Preparation | None  # how images were prepared for the net
    classes: tuple[str, ...]  # class names in a file that `export` wrote
    notes: tuple[str, ...]  # lines about what was not used


def find_origin(path: Path, net: str = "") -> Origin:
    """Return what is known of a weight file besides its arrays.

    `net` is timm's name of the net that the arrays fit, such as "resnet50d", or "" if they fit
    none. A `config.json` of another net is not used, nor are values that cannot be right.
    """
    beside = path.with_name("config.json")
    config, notes = _read_config(beside)
    known = {timm_name(model, stem) for model in MODELS for stem in ("", "d")}
    if net and str(config.get("architecture")) in known - {net}:
        notes.append(f"            {beside} is of {config['architecture']}, so it is not used")
        config = {}
    is_named, difference = _named(path.name)
    preparation = of_release(path)
    in_file = read_entries(path)
    for source, entries in ((str(beside), config), (f"{path} itself", in_file)):
        try:
            described = _preparation(source, entries)
        except ValueError as error:
            notes.append(f"warning: {error}; images are not prepared as in this file")
            described = None
        if described or "architecture" in entries:
            name = str(entries.get("architecture", ""))
            is_named |= bool(_NET_NAME.search(name))
            difference = _difference(source, name, entries) or difference
            preparation = described or preparation
    if not is_named:
        is_named, of_folder = _named(path.parent.name)
        difference = difference or of_folder
    names = in_file.get("classes")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        names = []
    classes = tuple(names)
    return Origin(is_named, difference, preparation, classes, tuple(notes))


def _named(name: str) -> tuple[bool, str]:
    """Return whether the name of a file or folder has a net's, and the net's difference to ours."""
    match = _NET_NAME.search(name)
    net = match[0].lower() if match else ""
    return bool(net), _difference(f"the name {name!r}", net, {})


def _preparation(source: str, entries: Mapping[str, Any]) -> Preparation | None:
    exported = entries.get("preprocessing")
    of_net = entries.get("pretrained_cfg")
    if isinstance(exported, dict):
        return of_export(source, exported)
    return of_timm(source, of_net if isinstance(of_net, dict) else entries)


def read_entries(path: Path) -> dict[str, Any]:
    """Return what a weight file contains beside arrays, with the names of timm's `config.json`.

    These are the metadata of a safetensors file, or the settings that a training script saved.
    """
    with open(path, "rb") as file:
        is_torch = is_torch_file(file.read(32))
    try:
        if is_torch:
            return _as_timm(**read_torch_settings(path))
        return {name: _from_json(text) for name, text in read_metadata(path).items()}
    except ValueError:  # another kind of file
        return {}


def _as_timm(arch: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of timm's and torchvision's scripts, named as in `config.json`."""
    names = ("mean", "std", "interpolation", "crop_pct", "input_size")
    entries = {name: args.get(name) for name in names}
    entries |= {"architecture": arch or args.get("model"), "model_args": args.get("model_kwargs")}
    size = args.get("img_size")
    crop_size, resize = args.get("val_crop_size"), args.get("val_resize_size")  # torchvision
    if isinstance(crop_size, int) and isinstance(resize, int) and crop_size and resize:
        size = crop_size
        entries["crop_pct"] = crop_size / resize
    if size and not entries["input_size"]:
        entries["input_size"] = [3, size, size]
    return {name: value for name, value in entries.items() if value}


def timm_name(model: str, stem: str) -> str:
    """Return timm's name of a net of this package: ("se_resnet50", "d") is "seresnet50d"."""
    name = model.replace("se_", "se")
    return re.sub(r"\d+", r"\g<0>d", name, count=1) if stem == "d" else name


def _read_config(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the entries of a `config.json`, or {}, and notes."""
    if not path.is_file():
        return {}, []
    try:
        config = read_json(path)
    except (OSError, ValueError) as error:
        return {}, [f"warning: {path} cannot be read ({first_line(error)}), and is not used"]
    return config if isinstance(config, dict) else {}, []


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _difference(source: str, net: str, config: Mapping[str, Any]) -> str:
    """Return how timm's net, built with the settings in `config`, differs from ours, or ""."""
    match = _NET_NAME.search(net)
    if match and (kind := match["antialiasing"]):
        what = "averages" if kind.lower() == "aa" else "blurs"
        return (
            f"{source} is of timm's {net}, which {what} pixels before a stride; "
            "no net of this package does"
        )
    arguments = config.get("model_args")
    settings = {**config, **(arguments if isinstance(arguments, dict) else {})}
    for name, plain in _PLAIN.items():
        if name in settings and settings[name] not in plain:
            return f"{source} has {name} {settings[name]!r}, as no net of this package has"
    return ""
