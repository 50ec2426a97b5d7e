"""Whether a resumed run sees the very bits that the unbroken one would have seen."""

from collections.abc import Mapping
from typing import Any

from resnet_fn.data.feed import Feed


def notes_on_resume(state: Mapping[str, Any], feed: Feed) -> list[str]:
    """Compare a checkpoint's feed with the present one.

    Returns:
        One line for each difference that changes the augmentation, and nothing else.

    Raises:
        ValueError: the training set has another size: every later update would hold other samples.
    """
    then, now = state.get("feed", {}), feed.reproducibility_key()
    if then.get("samples", now["samples"]) != now["samples"]:
        raise ValueError(
            f"resume: the training set has {now['samples']} samples and had {then['samples']}; "
            "give the same data, or another --out-dir"
        )
    names = {"data_threads": "data threads", "workers": "workers"}
    return [
        f"resuming with {now[key]} {name} instead of {then[key]}: the same samples in the same order, "
        "but their random crops and colours differ from the unbroken run's"
        for key, name in names.items()
        if key in now and key in then and now[key] != then[key]
    ]
