"""This module finds out of which net a weight file is, from its name, its metadata and the `config.json` beside it.

timm's anti-aliased nets have a plain net's arrays, but blur or average pixels before a stride leaves some out. So the
arrays do not show of which of the two nets they are.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from resnet_fn.config.hints import first_line
from resnet_fn.models import MODELS
from resnet_fn.weights.preparation import Preparation, of_export, of_release, of_timm

# timm's anti-aliased nets, by model and stem of the net of this package that has the same arrays.
_ANTIALIASED = {
    ("resnet18", "imagenet"): "resnetblur18",
    ("resnet34", "d"): "resnetaa34d",
    ("resnet50", "imagenet"): "resnetaa50 and resnetblur50",
    ("resnet50", "d"): "resnetaa50d and resnetblur50d",
    ("resnet101", "d"): "resnetaa101d and resnetblur101d",
    ("se_resnet50", "d"): "seresnetaa50d",
}
_NET_NAME = re.compile(r"(se[-_]?)?(wide[-_]?)?resne(x?)t[-_]?(aa|blur)?[-_]?\d+", re.IGNORECASE)
# timm's settings that change what a net computes but not its arrays, with the values of this package's nets.
_PLAIN: dict[str, Sequence[Any]] = {
    "aa_layer": ("",),
    "act_layer": ("relu",),
    "global_pool": ("avg",),
    "output_stride": (32,),
    "replace_stem_pool": (False,),
}


@dataclasses.dataclass(frozen=True)
class Origin:
    """What is known of a weight file besides its arrays."""

    net: str = ""  # the net's name in timm or torchvision, or "" if nothing says it
    difference: str = ""  # how the net differs from this package's nets with the same arrays, or ""
    preparation: Preparation | None = None  # how images were prepared for the net
    notes: tuple[str, ...] = ()  # lines about what was not used


def find_origin(path: Path, metadata: Mapping[str, str], net: str = "") -> Origin:
    """Return what is known of a weight file besides its arrays.

    Args:
        path: The file, whose folder may contain a `config.json`.
        metadata: Texts that the file contains beside its arrays.
        net: timm's name of the net that the arrays fit, such as "resnet50d", or "" if they fit none. A `config.json`
            of another net is not used.

    Raises:
        ValueError: If a value of the `config.json` or the metadata cannot be right.
    """
    texts = {name: _from_json(text) for name, text in metadata.items()}
    if "preprocessing" in texts:  # a file that `export` wrote
        place = f"the metadata of {path}"
        return Origin(str(texts.get("model", "")), preparation=of_export(place, texts["preprocessing"]))
    beside = path.with_name("config.json")
    config, notes = _read_config(beside)
    if net and _is_other(config, net):
        notes.append(f"{beside} is of {config['architecture']}, not of {path.name}, so it is not used")
        config = {}
    named = _name_in(path)
    for place, entries in ((f"the metadata of {path}", texts), (str(beside), config)):
        if "architecture" in entries or "pretrained_cfg" in entries:
            name = str(entries.get("architecture", named))
            preparation = of_timm(place, entries.get("pretrained_cfg") or entries)
            difference = _difference(place, name, entries) or _difference(path.name, named, {})
            return Origin(name, difference, preparation or of_release(path), tuple(notes))
    return Origin(named, _difference(str(path), named, {}), of_release(path), tuple(notes))


def timm_name(model: str, stem: str) -> str:
    """Return timm's name of a net of this package, for example "seresnet50d" for ("se_resnet50", "d")."""
    return re.sub(r"\d+", r"\g<0>d", model.replace("se_", "se"), count=1) if stem == "d" else model.replace("se_", "se")


def antialiased_nets(model: str, stem: str) -> str:
    """Return the names of timm's anti-aliased nets that have the arrays of this net, or "" if there are none."""
    return _ANTIALIASED.get((model, stem), "")


def _read_config(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return timm's entries of a `config.json`, {} if there is no such file, and notes."""
    if not path.is_file():
        return {}, []
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        return {}, [f"warning: {path} cannot be read ({first_line(error)}), so it is not used"]
    return config if isinstance(config, dict) else {}, []


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_other(config: Mapping[str, Any], net: str) -> bool:
    """Return whether a `config.json` is of a net of this package, but not of `net`."""
    known = {timm_name(model, stem) for model in MODELS for stem in ("", "d")}
    return config.get("architecture") in known - {net}


def _name_in(path: Path) -> str:
    """Return the name of a net in a file's name, or else in the names of the folders in its path, or ""."""
    found = (_NET_NAME.search(name) for name in reversed(path.parts))
    return next((match[0].lower() for match in found if match), "")


def _difference(place: str, net: str, config: Mapping[str, Any]) -> str:
    """Return how timm's net `net`, built with the settings in `config`, differs from this package's, or ""."""
    if (match := _NET_NAME.search(net)) and match[4]:
        what = "averages" if match[4].lower() == "aa" else "blurs"
        return f"{place} names timm's {net}, which {what} pixels before it leaves some out, and no net of ours does"
    settings = {"global_pool": config.get("global_pool"), **(config.get("model_args") or {})}
    for name, value in settings.items():
        if name in _PLAIN and value not in (None, *_PLAIN[name]):
            return f"{place} has {name} {value!r}, which no net of this package has"
    return ""
