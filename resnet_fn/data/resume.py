"""Whether a resumed run sees the very bits that the unbroken one would have seen."""

from collections.abc import Mapping, Sequence
from typing import Any

from resnet_fn.config.hints import renamed
from resnet_fn.data.feed import Feed


def notes_on_resume(state: Mapping[str, Any], classes: Sequence[str], feed: Feed, allow_other: bool) -> tuple[str, ...]:
    """Compare a checkpoint's training set with the present one.

    Args:
        state: the checkpoint's. Earlier ones know less; what they do not know is not compared.
        classes, feed: the present ones.
        allow_other: go on with another training set.

    Returns:
        One line for each difference that goes on: another training set, or what changes the augmentation alone.

    Raises:
        ValueError: another training set, with the differences: later updates would hold other samples or labels.
    """
    now = feed.reproducibility_key()
    then = {**now, **state.get("feed", {})}
    before = state.get("dataset", {}).get("classes", classes)
    changes = renamed(before, classes)
    differences = [f"classes {changes}"] if changes else []
    if then["samples"] != now["samples"]:
        differences.append(f"samples {then['samples']} → {now['samples']}")
    if not differences and then.get("files") != now.get("files"):
        differences.append("names or classes of its files")
    elif not differences and "contents" in now and then["contents"] != now["contents"]:  # unchecked files: not known
        differences.append("contents of its files, of which the names are the same")
    text = f"another training set than the checkpoint's ({', '.join(differences)})"
    if differences and not allow_other:
        raise ValueError(f"resume: {text}; give the same data, another --out-dir, or --allow-other-data")
    names = {"data_threads": "data threads", "workers": "workers"}
    fast_then = "data_threads" in then and "data_threads" not in now  # an earlier version, which had no other
    return (
        *([f"resuming with {text}"] if differences else []),
        *(
            [
                "resuming with --image-pipeline exact: this run's images were decoded in MindSpore's C++ pipeline; the "
                "same samples in the same order, but other crops and colours follow, and antialiased ones; "
                "--image-pipeline fast goes on as it began"
            ]
            if fast_then
            else []
        ),
        *(
            f"resuming with {now[key]} {name} instead of {then[key]}: the same samples in the same order, "
            "but their random crops and colours differ from the unbroken run's"
            for key, name in names.items()
            if key in now and now[key] != then[key]
        ),
        *(
            [f"resuming with --feed {now['feed']} instead of {then['feed']}: other bits follow"]
            if "feed" in now and now["feed"] != then["feed"]
            else []
        ),
    )
