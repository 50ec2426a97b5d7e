"""Settings that have gone: one table, read wherever settings of earlier versions come in.

Checkpoints, recipe files, runs' config.json, what a net is fed, traces: `translated`. Flags: `flag_hint`, `value_hint`.
Runs that go on: `check_resume`. An entry does nothing as long as its setting, or its value, exists.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple


class Gone(NamedTuple):
    """A setting that has gone, or values of it.

    Attributes:
        now: what replaces it.
        values: the values that have gone, with today's in their place; {}: the whole setting has gone.
        same: of a setting that has gone: the values whose results are today's; None: all.
    """

    now: str
    values: Mapping[Any, Any] = {}
    same: tuple[Any, ...] | None = None


GONE = {
    "image_pipeline": Gone(
        "images are always decoded as with 'exact', to torchvision's pixels; leave it out", same=("exact",)
    ),
    "scan_cache": Gone(
        "image files are checked again at each start; --check-files checks large sets too, --no-check-files none"
    ),
    "figure": Gone("--report DIR draws it, on a page with all else that parity has to say"),
    "mode": Gone("graph does its work", values={"split": "graph"}),
}


def translated(config: type, fields: Mapping[str, Any], same_results: bool = False) -> dict[str, Any]:
    """The settings of an earlier version as today's; `fields`: JSON types or Python's.

    With `same_results` a setting that has gone is kept if its value gave other results than today's.
    """
    now = {field.name: field for field in dataclasses.fields(config)}
    new = dict(fields)
    for name in GONE.keys() & fields.keys():
        gone, value = GONE[name], fields[name]
        if name not in now:
            if not same_results or gone.same is None or value in gone.same:
                del new[name]
        elif value in tuple(gone.values) and value not in now[name].metadata["choices"]:
            new[name] = gone.values[value]
    return new


def flag_hint(flag: str) -> str:
    """For a flag that has gone: what replaces it; else ""."""
    name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
    return f"{flag} has gone: {GONE[name].now}" if name in GONE and not GONE[name].values else ""


def value_hint(name: str, value: Any) -> str:
    """For a value that has gone: what replaces it; else ""."""
    gone = GONE.get(name)
    return f"has gone: {gone.now}" if gone and value in tuple(gone.values) else ""


def check_resume(state: Mapping[str, Any], path: object) -> None:
    """Raise a ValueError if later updates would see other pixels or labels than up to this checkpoint's `state`."""
    made, feed = state["recipe"], state.get("feed", {})
    why = ""
    if made.get("dataset") in ("imagefolder", "mindrecord"):
        # Before the setting `image_pipeline` there was only MindSpore's pipeline, whose threads were part of a run.
        if made.get("image_pipeline") == "fast" or "data_threads" in feed:
            why = "its images were decoded in MindSpore's C++ pipeline (image_pipeline 'fast')"
    elif "colour" not in feed and (made.get("policy") or made.get("color_jitter")):  # today's say so in the feed's key
        why = "its colours (policy, color_jitter) were varied by MindSpore's C++ operations"
    elif made.get("label_threshold") and made.get("loss") == "cross_entropy":
        why = "its label_threshold changed the labels of cross-entropy"
    if why:
        raise ValueError(
            f"resume: {path}: {why}, which has gone; other updates would follow. It can be evaluated, exported and "
            "predicted with, and a new run may start from its weights (--weights)"
        )
