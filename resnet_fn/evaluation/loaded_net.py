"""`load_run` loads a trained net from a checkpoint, for evaluation, prediction and export."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Tensor, nn

from resnet_fn.checkpoint.folder import Checkpoint, CheckpointError
from resnet_fn.checkpoint.parameters import assign_all, check_finite
from resnet_fn.checkpoint.run_folder import find_checkpoint
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe, check_buildable, recipe_from_dict
from resnet_fn.config.settings import changed, unchecked
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.images import prepare
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.preprocess import eval_pixels, open_upright
from resnet_fn.data.sources.files import read_regular
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.evaluation.eval_step import EvalStep, make_eval_step
from resnet_fn.models import build_net
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.average import averages_of
from resnet_fn.weights.load import WeightFile, load_weights, name_model, read_weights


@dataclasses.dataclass(frozen=True)
class LoadedNet:
    """Holds a net with loaded weights, in evaluation mode, and describes the input that it expects."""

    net: nn.Cell  # maps float32 [N, channels, image_size, image_size] to logits [N, classes]
    recipe: Recipe  # recipe of the checkpoint, with `eval_size` and `precision` as given to `load_run`
    input: InputSpec  # the images that the net expects
    checkpoint: Checkpoint | None  # source of the weights; None if this is a weight file
    averaged: bool = False  # whether the weights are the moving average (EMA)

    @property
    def update(self) -> int:
        """Return the number of updates that trained the net; 0 for a weight file."""
        return int(self.checkpoint.state["update"]) if self.checkpoint else 0

    @functools.cached_property
    def eval_step(self) -> EvalStep:
        """Return one shared evaluation step with logits: MindSpore keeps 20 MB of each compiled step until it ends."""
        return make_eval_step(self.net, with_logits=True)

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the class name of each logit."""
        return self.input.classes

    @property
    def preprocessing(self) -> dict[str, Any]:
        """Return the description of the preprocessing that `preprocess` applies to image files, as JSON types."""
        fields, other = self._file_input.to_dict(), ("classes", "data_dir", "train_list", "val_list")
        return {name: value for name, value in fields.items() if name not in other}

    @property
    def _file_input(self) -> InputSpec:  # pixels of image files reach 255, those of the training set may not
        return dataclasses.replace(self.input, full_scale=255.0)

    def preprocess(self, file: str | Path) -> np.ndarray:
        """Read an image file as float32 [1, channels, image_size, image_size]; a ValueError if it cannot be read."""
        spec = self._file_input
        pixels = read_pixels(Path(file), spec.channels, spec.eval_resize, spec.image_size)
        return prepare(pixels, spec.image_size, spec)


def read_pixels(path: Path, channels: int, resize: int = 0, crop: int = 0) -> np.ndarray:
    """Decode an image file to uint8 [1, H, W, channels]: grey for one channel, RGB for three.

    The image is turned by its EXIF orientation. With `resize`, the shorter side in pixels, it is cropped to `crop`.
    Raises a ValueError if the file cannot be read, is damaged, or is no image.
    """
    from PIL import UnidentifiedImageError

    try:
        data, mode = read_regular(path), "L" if channels == 1 else "RGB"
        pixels = eval_pixels(data, resize, crop) if resize else np.asarray(open_upright(data, mode))
    except Exception as error:  # PIL's decoders raise almost anything
        no_image = isinstance(error, UnidentifiedImageError)
        reason = "not an image" if no_image else getattr(error, "strerror", "") or error
        raise ValueError(f"{path}: cannot be read ({reason}); fix or remove it") from None
    return pixels.reshape(1, *pixels.shape[:2], channels)


def load_run(
    source: str | Path,
    which: str = "last",
    *,
    ema: bool | None = None,
    image_size: int = 0,
    precision: str = "",
    allow_non_finite: bool = False,
    device: str = "",
    threads: int = 0,
) -> LoadedNet:
    """Build the net that a checkpoint describes and load its weights. The data set is not needed.

    `run = load_run("runs/first"); run.net(Tensor(run.preprocess("seven.png")))` gives the logits of `run.classes`.

    Args:
        source: a run folder or a checkpoint folder.
        which: "last" or "best" checkpoint of a run folder.
        ema: True: load averaged weights (EMA); False: the trained weights; None: averaged ones if there are any.
        image_size: height and width of the net's input, in pixels; 0 for the recipe's own.
        precision: see `Recipe`; "" for the recipe's own.
        allow_non_finite: accept weights with NaN or infinity.
        device, threads: see `process.start`.

    Raises:
        ValueError: weights are not finite.
        CheckpointError: there is no intact checkpoint, or it does not fit its recipe, or lacks the EMA weights.
    """
    process.start(device, threads)
    checkpoint = find_checkpoint(Path(source), which)
    recipe = recipe_from_dict(checkpoint.state["recipe"])
    check_buildable(recipe)
    if precision:
        recipe = changed(recipe, precision=precision)
    spec = InputSpec.from_dict(checkpoint.state["dataset"])
    if image_size:
        # With eval_resize 0 the recipe computes the shorter side from the new size.
        recipe = changed(recipe, eval_size=image_size, eval_resize=0)
        resize = recipe.evaluation_resize if spec.eval_resize else 0
        spec = dataclasses.replace(spec, image_size=image_size, eval_resize=resize)
    net = build_net(recipe, spec)
    averaged = assign_checkpoint(net, checkpoint, ema)
    if not allow_non_finite:
        check_finite({parameter.name: parameter.numpy() for parameter in net.get_parameters()}, checkpoint.path)
    net.set_train(False)
    return LoadedNet(net, recipe, spec, checkpoint, averaged)


def load_weight_file(
    file: str | Path, recipe: Recipe, which: str = "last", *, allow_non_finite: bool = False, **data: Any
) -> tuple[LoadedNet, DataSet, WeightFile]:
    """Build a recipe's net for its data set (`open_dataset`), and load a weight file (`read_weights`) into it."""
    # Options of a recipe file for training's speed do not apply to evaluation.
    data["options"] = dataclasses.replace(data.get("options", RunOptions()), data_threads=0, progress=False)
    weights = read_weights(file, which)
    recipe = name_model(recipe, weights)
    dataset = open_dataset(recipe, **data)
    net = build_net(recipe, dataset.input)
    load_weights(net, weights, allow_non_finite=allow_non_finite)
    return LoadedNet(net, recipe, dataset.input, None, weights.averaged), dataset, weights


def assign_checkpoint(net: nn.Cell, checkpoint: Checkpoint, ema: bool | None = None) -> bool:
    """Copy a checkpoint's weights to `net`; return whether they are averaged. For `ema` and errors see `load_run`."""
    averages = averages_of(checkpoint.training)
    if ema and not averages:
        raise CheckpointError(f"{checkpoint.path}: holds no EMA weights; leave out --ema, or train with --ema 0.999")
    averaged = bool(averages) and ema is not False
    weights = {**checkpoint.weights, **averages} if averaged else checkpoint.weights
    assign_all(tuple(net.get_parameters()), weights, checkpoint.path)
    return averaged


def open_trained_dataset(
    trained: LoadedNet,
    data_dir: str = "",
    workers: Workers = Workers(),
    splits: Sequence[str] = ("test",),
    val_list: str = "",
) -> DataSet:
    """Open a checkpoint's data set, which must have the net's classes; "" takes the folder or list of training."""
    assert trained.checkpoint
    more: dict[str, Any] = {"run": trained.checkpoint.path.parent.parent, "trained_on": trained.input}
    options = unchecked(RunOptions, {"val_list": val_list, "progress": False})
    return open_dataset(trained.recipe, data_dir, options=options, workers=workers, splits=splits, **more)


class FlipAverage(nn.Cell):
    """Computes the mean of the logits of an image and of its mirror image (test-time augmentation)."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net

    def construct(self, x: Tensor) -> Tensor:
        """Compute logits [N, classes] of images [N, C, H, W]."""
        return (self.net(x) + self.net(x.flip((3,)))) * 0.5
