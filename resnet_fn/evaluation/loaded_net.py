"""`load_run` loads a trained net from a checkpoint."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Tensor, nn

from resnet_fn.checkpoint.folder import Checkpoint
from resnet_fn.checkpoint.manifest import CheckpointError
from resnet_fn.checkpoint.parameters import assign_all, check_finite
from resnet_fn.checkpoint.run_folder import earlier_run, find_checkpoint, run_of
from resnet_fn.config.options import RunOptions
from resnet_fn.config.printing import say
from resnet_fn.config.recipe import Recipe, check_buildable
from resnet_fn.config.stored import recipe_from_dict
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.images import normalise
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.preprocess import centre_pixels, whole_pixels
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.evaluation.describe_input import describe_preprocessing
from resnet_fn.evaluation.eval_step import EvalStep, make_eval_step
from resnet_fn.evaluation.picture import open_picture
from resnet_fn.models import build_net
from resnet_fn.models.untrained import saved_state
from resnet_fn.runtime import process
from resnet_fn.runtime.workers import Workers
from resnet_fn.update.average import averages_of
from resnet_fn.weights.load import (
    WeightFile,
    describe_source,
    load_weights,
    read_weights,
    suit_weights,
)


@dataclasses.dataclass(frozen=True)
class LoadedNet:
    """A trained net in evaluation mode, with its recipe and a description of its input."""

    net: nn.Cell  # maps float32 [N, channels, image_size, image_size] to logits [N, classes]
    recipe: Recipe  # the recipe, with an image size or a precision that `load_run` was given
    input: InputSpec  # the images that the net expects
    checkpoint: Checkpoint | None  # source of the weights; None if they come from a weight file
    averaged: bool = False  # whether the weights are the moving average (EMA)

    @property
    def update(self) -> int:
        """Return the number of updates that trained the net, or 0 if the weights come from a weight
        file.
        """
        return int(self.checkpoint.state["update"]) if self.checkpoint else 0

    @functools.cached_property
    def eval_step(self) -> EvalStep:
        """Return the evaluation step of this net, which returns logits and is compiled once."""
        # MindSpore never frees a compiled step
        return make_eval_step(self.net, with_logits=True)

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the names of the classes in the order of the logits."""
        return self.input.classes

    @property
    def preprocessing(self) -> dict[str, Any]:
        """Return what `preprocess` does as JSON types (see `describe_preprocessing`)."""
        return describe_preprocessing(self._file_input)

    @property
    # image files have pixels up to 255, whatever the training set has
    def _file_input(self) -> InputSpec:
        return dataclasses.replace(self.input, full_scale=255.0)

    def preprocess(self, image: Any) -> np.ndarray:
        """Return the net's input for an image, float32 [1, channels, image_size, image_size].

        Args:
            image: the path of an image file, a PIL image, or an array uint8 [H, W], [H, W, 1],
                [H, W, 3] (RGB) or [H, W, 4] (RGBA; the opacity is ignored).

        Raises:
            ValueError: the image cannot be read, or `image` is something else.
        """
        spec = self._file_input
        picture = open_picture(image, "L" if spec.channels == 1 else "RGB")
        if spec.eval_resize:
            pixels = centre_pixels(picture, spec.eval_resize, spec.image_size, spec.interpolation)
        else:
            pixels = whole_pixels(picture, spec.image_size)
        planes = pixels.transpose(2, 0, 1)[None]
        return normalise(planes, spec, np.empty(planes.shape, np.float32))


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
    """Build the net of a checkpoint and load its weights.

    The data set is not needed. Example: `run = load_run("runs/first");
    run.net(Tensor(run.preprocess("seven.png")))`.

    Args:
        source: a run folder or a checkpoint folder.
        which: whether the "last" or the "best" checkpoint of a run folder is loaded.
        ema: whether to load the averaged weights (EMA). If None, they are loaded if the checkpoint
            contains them.
        image_size: height and width of the net's input in pixels. If 0, the recipe's size is used.
        precision: precision of the net (see `Recipe`). If empty, the recipe's precision is used.
        allow_non_finite: whether weights may be NaN or infinite.
        device, threads: see `start`.

    Raises:
        ValueError: a weight is NaN or infinite, or the net was passed to `fit`, so that `load_run`
            cannot build it.
        CheckpointError: no checkpoint is intact, the checkpoint does not fit its recipe, or `ema`
            is True and the checkpoint has no averaged weights.
    """
    process.prepare(device, threads)
    checkpoint = find_checkpoint(Path(source), which)
    recipe = _recipe_of(checkpoint)
    spec = InputSpec.from_dict(checkpoint.state["dataset"])
    check_buildable(recipe)
    if precision:
        recipe = recipe.changed(precision=precision)
    if image_size:
        # With eval_resize 0 the recipe computes the shorter side from the new size. After a
        # preparation that came with weights, the crop keeps its share of an image, as in timm.
        of_weights = recipe.mean or recipe.interpolation
        resize = image_size * recipe.eval_resize // recipe.evaluation_size if of_weights else 0
        recipe = recipe.changed(eval_size=image_size, eval_resize=resize)
        resize = recipe.evaluation_resize if spec.eval_resize else 0
        spec = dataclasses.replace(spec, image_size=image_size, eval_resize=resize)
    net = build_net(recipe, spec)
    averaged = assign_checkpoint(net, checkpoint, ema)
    if not allow_non_finite:
        check_finite(
            {parameter.name: parameter.numpy() for parameter in net.get_parameters()},
            checkpoint.path,
        )
    return LoadedNet(net.set_train(False), recipe, spec, checkpoint, averaged)


def _recipe_of(checkpoint: Checkpoint) -> Recipe:
    """Return the recipe of a checkpoint. Its settings may be a stranger's, or of another version of
    this package.
    """
    settings = checkpoint.state["recipe"]
    try:
        return recipe_from_dict(settings)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"{checkpoint.path}: its recipe cannot be read ({error}); "
            "use the version of resnet_fn that wrote it, or give another run"
        ) from None


def load_weight_file(
    file: str | Path,
    recipe: Recipe,
    which: str = "last",
    *,
    allow_non_finite: bool = False,
    data_dir: str = "",
    options: RunOptions = RunOptions(),
    workers: Workers = Workers(),
) -> tuple[LoadedNet, DataSet, WeightFile]:
    """Open the validation split of a recipe's data set, build the net, and load a weight file.

    On worker 0, prints what is read.
    """
    weights = read_weights(file, which)
    recipe, weights = suit_weights(recipe, weights)
    if workers.is_main:
        say(*describe_source(weights))
    dataset = open_dataset(
        recipe,
        data_dir,
        # These two options of a recipe file are for training, as are its device and its threads.
        options=options.adapted(data_threads=0, progress=False),
        workers=workers,
        splits=("test",),
        weights_of=earlier_run(file, recipe),
    )
    net = build_net(recipe, dataset.input)
    load_weights(net, weights, allow_non_finite=allow_non_finite)
    return LoadedNet(net, recipe, dataset.input, None, weights.averaged), dataset, weights


def assign_checkpoint(net: nn.Cell, checkpoint: Checkpoint, ema: bool | None = None) -> bool:
    """Copy a checkpoint's weights to `net`.

    Return whether averaged weights were copied. For `ema` see `load_run`.
    """
    averages = {} if ema is False else averages_of(checkpoint.training)
    if ema and not averages:
        raise CheckpointError(
            f"{checkpoint.path}: contains no EMA weights; leave out --ema, or train with --ema "
            "0.999"
        )
    assign_all(saved_state(net), {**checkpoint.weights, **averages}, checkpoint.path)
    return bool(averages)


def open_trained_dataset(
    trained: LoadedNet,
    data_dir: str = "",
    workers: Workers = Workers(),
    val_list: str = "",
) -> DataSet:
    """Open the validation split of a checkpoint's data set.

    An empty `data_dir` or `val_list` is replaced by the training run's value. `data_dir` may also
    be a folder of other images to score.
    """
    assert trained.checkpoint
    return open_dataset(
        trained.recipe,
        data_dir,
        options=RunOptions.unchecked({"val_list": val_list, "progress": False}),
        workers=workers,
        splits=("test",),
        run=run_of(trained.checkpoint.path),
        trained_on=trained.input,
        trained_files=trained.checkpoint.state.get("feed"),
    )


class FlipAverage(nn.Cell):
    """Averages the logits of an image and its mirror image (test-time augmentation)."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net

    def construct(self, x: Tensor) -> Tensor:
        """Return the logits [N, classes] of images [N, C, H, W]."""
        return (self.net(x) + self.net(x.flip((3,)))) * 0.5
