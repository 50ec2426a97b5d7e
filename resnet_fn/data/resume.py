"""Whether a resumed run sees the very bits that the unbroken one would have seen."""

from collections.abc import Mapping, Sequence
from typing import Any

from resnet_fn.config.hints import renamed
from resnet_fn.data.feed import Feed


def notes_on_resume(state: Mapping[str, Any], classes: Sequence[str], feed: Feed, allow_other: bool) -> tuple[str, ...]:
    """Compare a checkpoint's training set with the present one: a line for each difference that goes on.

    Args:
        state: the checkpoint's. What earlier ones do not hold is not compared.
        classes, feed: the present ones.
        allow_other: go on with another training set.

    Raises:
        ValueError: another training set, with the differences: later updates would hold other samples or labels.
    """
    now = feed.reproducibility_key()
    then = {**now, **state.get("feed", {})}
    changes = renamed(state.get("dataset", {}).get("classes", classes), classes)
    differences = [f"classes {changes}"] if changes else []
    if then["samples"] != now["samples"]:
        differences.append(f"samples {then['samples']} → {now['samples']}")
    if not differences and then.get("files") != now.get("files"):
        differences.append("names or classes of its files")
    elif not differences and "contents" in now and then["contents"] != now["contents"]:
        differences.append("contents of its files, of which the names are the same")
    text = f"another training set than the checkpoint's ({', '.join(differences)})"
    if differences and not allow_other:
        raise ValueError(f"resume: {text}; give the same data, another --out-dir, or --allow-other-data")
    notes = [f"resuming with {text}"] if differences else []
    if "feed" in now and then["feed"] != now["feed"]:
        notes.append(f"resuming with --feed {now['feed']} instead of {then['feed']}: other bits follow")
    return tuple(notes)
