"""A trained net from a checkpoint, as evaluation, prediction and export use it."""

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
    """A net with a checkpoint's weights, in evaluation mode, and the input that it expects."""

    net: nn.Cell  # maps float32 [N, channels, image_size, image_size] to logits [N, classes]
    recipe: Recipe  # the checkpoint's, with the image size and precision that were asked for
    input: InputSpec  # the images that the net expects
    checkpoint: Checkpoint | None  # that the weights come from; None for a bare weight file
    averaged: bool = False  # whether these are averaged weights (EMA)

    @property
    def update(self) -> int:
        """The number of updates that the net has seen; 0 for a bare weight file."""
        return int(self.checkpoint.state["update"]) if self.checkpoint else 0

    @functools.cached_property
    def eval_step(self) -> EvalStep:
        """The evaluation of a batch, with logits: one for every use, as MindSpore keeps 20 MB of each for good."""
        return make_eval_step(self.net, with_logits=True)

    @property
    def classes(self) -> tuple[str, ...]:
        """The class name of each logit."""
        return self.input.classes

    @property
    def preprocessing(self) -> dict[str, Any]:
        """The preprocessing of image files, as JSON types; `preprocess` applies it."""
        fields, other = self._file_input.to_dict(), ("classes", "data_dir", "train_list", "val_list")
        return {name: value for name, value in fields.items() if name not in other}

    @property
    def _file_input(self) -> InputSpec:  # the full scale of image files is 255, whatever the training set's was
        return dataclasses.replace(self.input, full_scale=255.0)

    def preprocess(self, file: str | Path) -> np.ndarray:
        """Read an image file as the net's input, float32 [1, channels, image_size, image_size]; else a ValueError."""
        spec = self._file_input
        pixels = read_pixels(Path(file), spec.channels, spec.eval_resize, spec.image_size)
        return prepare(pixels, spec.image_size, spec)


def read_pixels(path: Path, channels: int, resize: int = 0, crop: int = 0) -> np.ndarray:
    """Decode an image file to uint8 [1, H, W, channels]: grey for one channel, RGB for three.

    It is turned by its EXIF orientation; with `resize` (the shorter side) and `crop` it is cut as in evaluation.
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
        which: of a run folder, the "last" or the "best" checkpoint.
        ema: take averaged weights (EMA); False: the weights themselves; None: averaged ones where there are any.
        image_size: height and width of the net's input; 0 for the recipe's own.
        precision: see `Recipe`; "" for the recipe's own.
        allow_non_finite: accept weights with NaN or infinity.
        device, threads: see `process.start`.

    Raises:
        ValueError: names weights that are not finite.
        CheckpointError: no intact checkpoint there, it does not fit its own recipe, or it holds no EMA weights.
    """
    process.start(device, threads)
    checkpoint = find_checkpoint(Path(source), which)
    recipe = recipe_from_dict(checkpoint.state["recipe"])
    check_buildable(recipe)
    if precision:
        recipe = changed(recipe, precision=precision)
    spec = InputSpec.from_dict(checkpoint.state["dataset"])
    if image_size:
        # eval_resize 0: the shorter side in proportion. The net is built for the size that it was trained with.
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
    # What a recipe file gives for training's speed is not for here.
    data["options"] = dataclasses.replace(data.get("options", RunOptions()), data_threads=0, progress=False)
    weights = read_weights(file, which)
    recipe = name_model(recipe, weights)
    dataset = open_dataset(recipe, **data)
    net = build_net(recipe, dataset.input)
    load_weights(net, weights, allow_non_finite=allow_non_finite)
    return LoadedNet(net, recipe, dataset.input, None, weights.averaged), dataset, weights


def assign_checkpoint(net: nn.Cell, checkpoint: Checkpoint, ema: bool | None = None) -> bool:
    """Assign a checkpoint's weights to its net; returns whether they are averaged. `ema`, errors: see `load_run`."""
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
    """Open the data set of a checkpoint, which must have its classes; `data_dir`, `val_list`: "" for its own."""
    assert trained.checkpoint
    more: dict[str, Any] = {"run": trained.checkpoint.path.parent.parent, "trained_on": trained.input}
    options = unchecked(RunOptions, {"val_list": val_list, "progress": False})
    return open_dataset(trained.recipe, data_dir, options=options, workers=workers, splits=splits, **more)


class FlipAverage(nn.Cell):
    """Computes the mean of an image's logits and its mirror image's: test-time augmentation."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net

    def construct(self, x: Tensor) -> Tensor:
        """Compute logits [N, classes] of images [N, C, H, W]."""
        return (self.net(x) + self.net(x.flip((3,)))) * 0.5
