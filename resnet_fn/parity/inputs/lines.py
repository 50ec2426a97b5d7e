"""Where the reference's code calls Pillow or torchvision: file and line of each kind of call."""

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

# What a cause belongs to → functions whose calls decide it.
_PILLOW = {
    "resize": ("resize", "thumbnail", "reduce"),
    "crop": ("crop",),
    "decode": ("convert", "transpose"),
}
_TORCHVISION = {
    "resize": ("resize",),
    "crop": ("center_crop", "crop"),
    "values": ("normalize", "to_tensor", "to_dtype", "convert_image_dtype"),
    "channels": ("to_tensor", "pil_to_tensor", "to_image"),
}
_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARIES = ("site-packages", "dist-packages")


@contextlib.contextmanager
def recorded_calls() -> Iterator[dict[str, str]]:
    """Record in which line of the user's code each kind of call is made, in a `with` block.

    The dict maps what a cause belongs to, such as "resize", to a place such as
    "torch_side.py:12 (Resize)". The first call of a kind counts.
    """
    from PIL import Image, ImageOps

    places: dict[str, str] = {}
    patched: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, kind: str) -> None:
        function = getattr(owner, name, None)
        if callable(function):
            patched.append((owner, name, function))
            setattr(owner, name, _recording(function, kind, places))

    for kind, names in _PILLOW.items():
        for name in names:
            patch(Image.Image, name, kind)
    patch(Image, "open", "open")
    patch(ImageOps, "exif_transpose", "decode")
    # version 2 of its transforms looks its functions up by identity, and is left alone
    functional = sys.modules.get("torchvision.transforms.functional")
    for kind, names in _TORCHVISION.items() if functional else ():
        for name in names:
            patch(functional, name, kind)
    try:
        yield places
    finally:
        for owner, name, function in reversed(patched):
            setattr(owner, name, function)


def _recording(function: Callable[..., Any], kind: str, places: dict[str, str]) -> Any:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if kind not in places and (location := _place()):
            places[kind] = location
        return function(*args, **kwargs)

    return called


def _place() -> str:
    """Return the line of the user's code that is running, and the transform it calls, if any."""
    transform = ""
    for frame, line in traceback.walk_stack(sys._getframe(2)):
        file = frame.f_code.co_filename
        if file.startswith(_HERE):
            break
        if any(library in file for library in _LIBRARIES) or file.startswith(
            ("<", sys.base_prefix)
        ):
            owner = frame.f_locals.get("self")
            module = type(owner).__module__ if owner is not None else ""
            is_transform = "transforms" in module and type(owner).__name__ != "Compose"
            transform = transform or type(owner).__name__ * is_transform
            continue
        return f"{os.path.basename(file)}:{line}" + f" ({transform})" * bool(transform)
    return f"the reference's {transform}" if transform else ""
