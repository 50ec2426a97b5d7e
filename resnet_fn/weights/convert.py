"""Weights from one project's names and format to another's."""

from pathlib import Path
from typing import Any

from resnet_fn.checkpoint.parameters import check_finite
from resnet_fn.config.hints import closest
from resnet_fn.models import create_model
from resnet_fn.weights.files import write_arrays
from resnet_fn.weights.load import read_weights
from resnet_fn.weights.names import STYLES, differences, is_basic, rename
from resnet_fn.weights.recognise import WeightsError, ambiguity, check_fit, recognise_model


def convert_weights(
    source: str | Path, target: str | Path, to: str = "ours", model: str = "", allow_non_finite: bool = False
) -> dict[str, Any]:
    """Read weights in any style and write them in another; values keep every bit.

    The net is recognised from names and shapes, built, and compared with: nothing may be missing or unexpected.

    Args:
        source: see `read_weights`.
        target: a file ending in `.safetensors`, `.ckpt`, `.pth` or `.pt`.
        to: the names to write: "ours", "torchvision" (and timm), "mindcv" or "official".
        model: the model's name; "" recognises it.
        allow_non_finite: take weights with NaN or infinity in them.

    Returns:
        {"model": name, "from": style, "to": style, "tensors": count, "warnings": texts}

    Raises:
        ValueError: what does not fit, with every name, or is not finite; or the target's net would compute something
            else.
    """
    if to not in STYLES:
        raise ValueError(f"to: {to!r} is unknown; {closest(to, STYLES)}")
    read = read_weights(source)
    try:
        found = recognise_model(read.arrays, model or read.model)
    except WeightsError as error:
        raise WeightsError(f"{source}: {error}" + ("" if model else "; name it with --model")) from None
    net = create_model(**found)
    names = [parameter.name for parameter in net.get_parameters()]
    check_fit({parameter.name: parameter.shape for parameter in net.get_parameters()}, read.arrays, str(source))
    if not allow_non_finite:
        check_finite(read.arrays, source)
    warning, useless = ("", False) if to == read.style else differences(to, read.arrays)
    if useless:
        raise WeightsError(f"to: {to!r}: {warning}")
    basic = is_basic(names)
    write_arrays(Path(target), {rename(name, to, basic): read.arrays[name] for name in names})
    unsure = "" if model or read.model else ambiguity(found["name"])
    warnings = [text for text in (read.warning, warning, unsure) if text]
    return {"model": found["name"], "from": read.style, "to": to, "tensors": len(names), "warnings": warnings}
