"""The data stage of the parity ladder: how far this package's pixels are from PIL's and torchvision's, on JPEGs."""

import dataclasses
import io
from collections.abc import Callable, Sequence

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.fake_photos import photograph
from resnet_fn.data.normalise import prepare
from resnet_fn.data.photos.augment import CROP as CROP_STREAM
from resnet_fn.data.photos.augment import Box, draw_view, training_pixels
from resnet_fn.data.preprocess import as_decodable, eval_pixels, open_upright, orientation_of
from resnet_fn.data.sources.files import IMAGENET_MEAN, IMAGENET_STD, color_spec
from resnet_fn.parity.torch_side.vision import find_torchvision

RESIZE, CROP = 256, 224  # evaluation's shorter side and centre crop, pixels


@dataclasses.dataclass(frozen=True)
class PixelDifference:
    """This package's pixels against the reference's, over all images.

    Attributes:
        name: what is compared.
        reference: with what.
        largest, mean: absolute difference, in steps of 1/255 (the last stage: in standard deviations).
        differing: share of values that differ at all, fraction of 1.
        limit: what `largest` must not exceed; None: reported only, a difference that is known and accepted.
    """

    name: str
    reference: str
    largest: float
    mean: float
    differing: float
    limit: float | None

    @property
    def passes(self) -> bool:
        """Whether the difference is within its limit."""
        return self.limit is None or self.largest <= self.limit


def table(differences: Sequence[PixelDifference]) -> str:
    """One line for each comparison."""
    lines = [
        f"{'data stage':34} {'reference':24} {'max abs':>9} {'mean abs':>9} {'differing':>9} {'allowed':>8}  verdict"
    ]
    for item in differences:
        allowed, verdict = (
            (f"{item.limit:8.0e}", "ok" if item.passes else "DIFFERS")
            if item.limit is not None
            else (f"{'':8}", "known")
        )
        lines.append(
            f"{item.name:34} {item.reference:24} {item.largest:9.1e} {item.mean:9.1e} {item.differing:9.1%} "
            f"{allowed}  {verdict}"
        )
    return "\n".join(lines)


def sample_files() -> list[bytes]:
    """Eight generated JPEGs of several sizes, upright and wide, one grey, one in CMYK."""
    from PIL import Image

    files = []
    for number in range(8):
        width, height = ((500, 375), (333, 500), (256, 256), (640, 427))[number % 4]
        image = Image.fromarray(photograph(number, width, height))
        image = image.convert({5: "L", 6: "CMYK"}.get(number, "RGB"))
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=75 + 5 * (number % 4))
        files.append(buffer.getvalue())
    return files


def data_stage(files: Sequence[bytes]) -> list[PixelDifference]:
    """Compare decoding, evaluation's and training's preprocessing, normalisation, and the fast pipeline's resize.

    Args:
        files: JPEGs' bytes; none: `sample_files()`.

    Returns:
        One entry per comparison, in the order of the pipeline.
    """
    from mindspore.dataset import vision
    from PIL import Image

    files = list(files) or sample_files()
    images = [np.asarray(open_upright(data)) for data in files]
    # What EXIF turns training decodes from a copy that stands upright.
    turned = [orientation_of(Image.open(io.BytesIO(data))) != 1 for data in files]
    bytes_ = [as_decodable(data) if turn else data for data, turn in zip(files, turned, strict=True)]
    decoded = [vision.Decode()(np.frombuffer(data, np.uint8)) for data in bytes_]
    transform, name = reference_transform(RESIZE, CROP)
    ours = [eval_pixels(data, RESIZE, CROP) for data in files]
    theirs = [transform(data) for data in files]
    normalised = prepare(np.stack(ours), CROP, color_spec("", (), IMAGENET_MEAN, IMAGENET_STD))
    expected = (np.stack(theirs).astype(np.float64) / 255 - IMAGENET_MEAN) / IMAGENET_STD
    return [
        _difference("fast: decode, C++", "PIL", decoded, images, 0.0),
        _difference("evaluation: resize, centre crop", name, ours, theirs, 0.0),
        _training(files, images),
        _difference("normalise", "float64", [normalised], [expected.transpose(0, 3, 1, 2)], 2e-6),
        _fast_resize(images),
    ]


def _difference(
    name: str, reference: str, ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray], limit: float | None
) -> PixelDifference:
    gaps = []
    for one, other in zip(ours, theirs, strict=True):
        if one.shape != other.shape:
            return PixelDifference(name, reference, float("inf"), float("inf"), 1.0, limit)
        gaps.append(np.abs(one.astype(np.float64) - other).reshape(-1))
    gap = np.concatenate(gaps)
    return PixelDifference(name, reference, float(gap.max()), float(gap.mean()), float((gap > 0).mean()), limit)


def _training(files: Sequence[bytes], images: Sequence[np.ndarray]) -> PixelDifference:
    recipe = Recipe(dataset="imagefolder", image_size=CROP, flip=True)
    transform, name = _reference_view()
    ours, theirs = [], []
    for number, (data, image) in enumerate(zip(files, images, strict=True)):
        rng = np.random.default_rng([recipe.seed, 0, CROP_STREAM, 0, number])
        ours.append(training_pixels(data, recipe, 0, 0, number))
        theirs.append(transform(image, *draw_view(recipe, (image.shape[1], image.shape[0]), rng)))
    return _difference("training: crop, resize, flip", name, ours, theirs, 0.0)


def _fast_resize(images: Sequence[np.ndarray]) -> PixelDifference:
    # MindSpore's C++ resizes without antialiasing, PIL with: known, and no bias between the two.
    from mindspore.dataset import vision
    from PIL import Image

    ours, theirs = [], []
    resize = vision.Resize((CROP, CROP))
    for image in images:
        height, width = image.shape[:2]
        box = image[height // 8 : -height // 8, width // 8 : -width // 8]
        ours.append(resize(np.ascontiguousarray(box)))
        theirs.append(np.asarray(Image.fromarray(box).resize((CROP, CROP), Image.Resampling.BILINEAR)))
    return _difference("fast: resize of a crop, C++", "PIL, antialiased", ours, theirs, None)


def _reference_view() -> tuple[Callable[[np.ndarray, Box, bool], np.ndarray], str]:
    # A crop for this box, resized and perhaps mirrored, by torchvision where it loads, else by PIL and NumPy.
    from PIL import Image

    if torchvision := find_torchvision():
        functional = torchvision.transforms.functional

        def by_torchvision(image: np.ndarray, box: Box, mirrored: bool) -> np.ndarray:
            left, top, right, bottom = box
            picture = functional.resized_crop(
                Image.fromarray(image), top, left, bottom - top, right - left, [CROP, CROP]
            )
            return np.asarray(functional.hflip(picture) if mirrored else picture)

        return by_torchvision, "torchvision"

    def written_out(image: np.ndarray, box: Box, mirrored: bool) -> np.ndarray:
        left, top, right, bottom = box
        cut = Image.fromarray(np.ascontiguousarray(image[top:bottom, left:right]))
        pixels = np.asarray(cut.resize((CROP, CROP), Image.Resampling.BILINEAR))
        return pixels[:, ::-1] if mirrored else pixels

    return written_out, "PIL, torchvision's steps"


def reference_transform(resize: int, crop: int) -> tuple[Callable[[bytes], np.ndarray], str]:
    """Evaluation's preprocessing by torchvision where it loads, else the same steps written with PIL.

    Args:
        resize, crop: shorter side and centre crop, pixels.

    Returns:
        A function from a file's bytes to uint8 [crop, crop, 3], and what it is.
    """
    if torchvision := find_torchvision():
        transforms = torchvision.transforms
        both = transforms.Compose([transforms.Resize(resize), transforms.CenterCrop(crop)])
        return lambda data: np.asarray(both(open_upright(data))), "torchvision"

    def written_out(data: bytes) -> np.ndarray:
        from PIL import Image

        image = open_upright(data)
        scale = resize / min(image.size)
        # The shorter side is exact, the longer one is cut down to whole pixels.
        size = tuple(resize if side == min(image.size) else int(side * scale + 1e-9) for side in image.size)
        pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR) if size != image.size else image)
        top, left = (int(np.rint((side - crop) / 2)) for side in pixels.shape[:2])
        return pixels[top : top + crop, left : left + crop]

    return written_out, "PIL, torchvision's steps"
