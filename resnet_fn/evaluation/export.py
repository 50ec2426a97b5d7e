"""`export` writes a trained net to a file, and checks that the file computes the same logits as the
net.
"""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn
from mindspore.train.mind_ir_pb2 import ModelProto

from resnet_fn.checkpoint.parameters import assign_all
from resnet_fn.checkpoint.tensor_file import write_safetensors
from resnet_fn.config.wording import first_line
from resnet_fn.data.dataset import eval_batches
from resnet_fn.data.image_file import open_image
from resnet_fn.evaluation.describe_input import sample_picture
from resnet_fn.evaluation.loaded_net import LoadedNet, load_run, open_trained_dataset
from resnet_fn.evaluation.task import task_of
from resnet_fn.models import build_net
from resnet_fn.models.convolution import standard_operations
from resnet_fn.runtime.disk import replace_file, sha256, writing
from resnet_fn.runtime.extras import import_extra
from resnet_fn.runtime.outputs import check_output, has_keys

_IMAGES = 128  # number of validation images on which a file is checked
INPUT, OUTPUT = "images", "logits"  # names of a graph's input and output
# Largest allowed difference of a logit for each precision, divided by the largest absolute logit
# (at least 1).
TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2}

_IS_CARD = has_keys(("format", "preprocessing", "output"))  # of the description beside a file

Forward = Callable[[np.ndarray], np.ndarray]


class ExportError(ValueError):
    """The exported file cannot be run, or its logits differ from the net's.

    The exported file is not kept.
    """


def export(
    run: LoadedNet | str | Path,
    out: str | Path,
    batch: int = 0,
    images: np.ndarray | None = None,
    data_dir: str = "",
) -> dict[str, Any]:
    """Export a net to a file, and compare the logits of the file and the net.

    Args:
        run: a run folder (its last checkpoint), a checkpoint folder, or the result of `load_run`.
        out: the file to write, which ends in .mindir, .onnx or .safetensors (weights only). A
            description of the net is written beside the file, with ".json" appended to the name.
        batch: batch size of the exported net. If 0, the exported net accepts any batch size.
        images: float32 [N, C, H, W], for the comparison. If None, the first validation images are
            used, at most 128, or noise if `data_dir` is empty and the training's data set cannot be
            read.
        data_dir: folder of the data set. If empty, the data set is read from the same folder as in
            training.

    Returns:
        A description of the exported net and of its input as a dict, with a sample picture and its
        logits. The file next to `out` contains the same dict as JSON. The exported file contains it,
        without "verified", as metadata, except in MindIR.

    Raises:
        ExportError: the exported file cannot be run, or its logits differ from the net's. No
            exported file is kept.
        ValueError: `out` does not end in .mindir, .onnx or .safetensors, cannot be written, or
            is a file that was not exported.
    """
    out = Path(out)
    kind = out.suffix.removeprefix(".")
    if kind not in _WRITERS:
        raise ValueError(
            f"out: {out} ends in {out.suffix or 'nothing'!r}; give a file that ends in .mindir, "
            ".onnx or .safetensors"
        )
    beside = out.with_name(out.name + ".json")
    check_output("out", beside, _IS_CARD)
    check_output("out", out, lambda _: _IS_CARD(beside))  # what it describes is ours
    trained = run if isinstance(run, LoadedNet) else load_run(run)
    compared_on = "validation images" if images is None else "given images"
    if images is None:
        try:
            images = _validation_images(trained, data_dir)
        except (ValueError, OSError):
            # the data set was moved or changed: an export does not depend on it
            if data_dir:
                raise
            compared_on = "images of noise (the data set cannot be read)"
            shape = (_IMAGES, trained.input.channels, *[trained.input.image_size] * 2)
            images = np.random.default_rng(0).standard_normal(shape, np.float32)
    card = describe_export(trained, kind, batch)
    with writing(f"out: {out}", "give another file"):
        out.parent.mkdir(parents=True, exist_ok=True)
        # The card comes first: without its card, a later export would take the file for the user's.
        with replace_file(out) as file, replace_file(beside) as described:
            _WRITERS[kind](trained, file, card)
            card["verified"] = compare(trained, _READERS[kind](file, trained), images, batch)
            card["verified"]["compared_on"] = compared_on
            described.write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    return card


def _validation_images(trained: LoadedNet, data_dir: str) -> np.ndarray:
    dataset = open_trained_dataset(trained, data_dir)
    return next(eval_batches(dataset.test, dataset.input, min(_IMAGES, len(dataset.test))))[0]


def describe_export(trained: LoadedNet, kind: str, batch: int) -> dict[str, Any]:
    """Return a description of the exported net as JSON types."""
    spec = trained.input
    shape = [batch or None, spec.channels, spec.image_size, spec.image_size]
    return {
        "format": kind,
        "model": trained.recipe.model,
        "recipe": trained.recipe.name,
        "update": trained.update,
        "input": {"name": INPUT, "shape": shape, "dtype": "float32", "layout": "NCHW"},
        "preprocessing": trained.preprocessing,
        "output": {
            "name": OUTPUT,
            "shape": [shape[0], len(spec.classes)],
            "dtype": "float32",
            "meaning": task_of(trained.recipe.multi_label).output,
        },
        "classes": list(spec.classes),
        "sample": _sample(trained),
    }


def _sample(trained: LoadedNet) -> dict[str, Any]:
    """Return a picture and the net's logits, with which others check how they prepare pictures."""
    png = sample_picture(trained.input)
    logits = trained.net.set_train(False)(Tensor(trained.preprocess(open_image(png)))).numpy()
    return {
        "png_base64": base64.b64encode(png).decode(),
        "sha256": sha256(png),
        "logits": logits[0, :10].astype(float).tolist(),
    }


def compare(trained: LoadedNet, answers: Forward, images: np.ndarray, batch: int) -> dict[str, Any]:
    """Compare the logits of the exported file with the logits of the net.

    `answers` runs the file.
    """
    size = batch or len(images)
    rows = max(len(images) // size, 1) * size
    # whole batches; too few images are repeated
    images = np.resize(images, (rows, *images.shape[1:]))
    parts = np.split(images, rows // size)
    trained.net.set_train(False)
    expected = np.concatenate(
        [trained.net(Tensor(part)).numpy().astype(np.float32) for part in parts]
    )
    if batch == 0:
        # A second batch size tests that the file accepts any batch size.
        parts.append(images[:1])
        expected = np.concatenate((expected, expected[:1]))
    try:
        logits = np.concatenate([answers(part) for part in parts])
    except Exception as error:
        raise ExportError(
            f"the file cannot be run ({first_line(error)}) and was not kept; set a batch size: "
            "--batch N"
        ) from None
    if logits.shape != expected.shape:
        raise ExportError(
            f"the exported file's logits have shape {logits.shape}, but must have {expected.shape}"
        )
    difference = float(np.abs(logits - expected).max())
    limit = TOLERANCE[trained.recipe.precision] * max(1.0, float(np.abs(expected).max()))
    if not difference <= limit:
        raise ExportError(
            f"the exported file's logits differ from the net's by up to {difference:.3g} on {rows} "
            "images; "
            f"the largest allowed difference is {limit:.3g}, and no file was kept"
        )
    return {
        "images": rows,
        "largest_difference": difference,
        "tolerance": limit,
        "same_top1": float((logits.argmax(1) == expected.argmax(1)).mean()),
    }


class _Float32Logits(nn.Cell):
    def __init__(self, net: nn.Cell) -> None:
        super().__init__(auto_prefix=False)  # the parameters keep their names
        self.net = net

    def construct(self, x: Tensor) -> Tensor:
        return self.net(x).astype(mindspore.float32)


def _export(trained: LoadedNet, file: Path, sample: Tensor, kind: str) -> None:
    net = trained.net if trained.recipe.precision == "fp32" else _Float32Logits(trained.net)
    with standard_operations(trained.net):
        mindspore.export(net.set_train(False), sample, file_name=str(file), file_format=kind)


def _texts(card: dict[str, Any]) -> dict[str, str]:
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in card.items()
    }


def _save(file: Path, model: Any) -> None:
    """Name the input "images" and the output "logits" in an ONNX or MindIR model, and write the
    model to `file`.
    """
    graph = model.graph
    names = {graph.input[0].name: INPUT, graph.output[0].name: OUTPUT}
    for end in (*graph.input, *graph.output):
        end.name = names[end.name]
    for node in graph.node:
        node.name = names.get(node.name, node.name)
        for edges in (node.input, node.output):
            edges[:] = [names.get(edge, edge) for edge in edges]
    file.unlink()  # MindSpore makes its files read-only
    file.write_bytes(model.SerializeToString())


def _write_mindir(trained: LoadedNet, file: Path, card: dict[str, Any]) -> None:
    shape = card["input"]["shape"]
    sample = Tensor(shape=shape, dtype=mindspore.float32)
    if shape[0]:  # MindSpore wants data for a shape that is fixed
        sample = Tensor(np.zeros(shape, np.float32))
    _export(trained, file, sample, "MINDIR")
    _save(file, ModelProto.FromString(file.read_bytes()))


def _read_mindir(file: Path, _: LoadedNet) -> Forward:
    loaded = nn.GraphCell(mindspore.load(str(file)))
    return lambda images: loaded(Tensor(images)).numpy().astype(np.float32)


def _write_onnx(trained: LoadedNet, file: Path, card: dict[str, Any]) -> None:
    # before the export: a missing package is reported at once
    import_extra("onnxruntime", "--format onnx")
    onnx = import_extra("onnx", "--format onnx")
    # MindSpore's exporter has no dynamic shapes. These nets compute the same for any batch size, so
    # the first dimension of input and output is made dynamic in the file.
    batch, *shape = card["input"]["shape"]
    _export(trained, file, Tensor(np.zeros((batch or 2, *shape), np.float32)), "ONNX")
    model = onnx.load(str(file))
    if batch is None:
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
        del model.graph.value_info[:]
    for key, text in _texts(card).items():
        model.metadata_props.add(key=key, value=text)
    _save(file, model)
    onnx.checker.check_model(str(file))


def _read_onnx(file: Path, _: LoadedNet) -> Forward:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda images: session.run([OUTPUT], {INPUT: images})[0].astype(np.float32)


def _write_safetensors(trained: LoadedNet, file: Path, card: dict[str, Any]) -> None:
    write_safetensors(
        file,
        {p.name: p.numpy().astype(np.float32) for p in trained.net.get_parameters()},
        _texts(card),
    )


def _read_safetensors(file: Path, trained: LoadedNet) -> Forward:
    # new: its weights can only come from the file
    net = build_net(trained.recipe, trained.input).set_train(False)
    read = mindspore.load_checkpoint(str(file), format="safetensors")
    weights = {name: value.numpy() for name, value in read.items()}
    assign_all(tuple(net.get_parameters()), weights, file)
    return lambda images: net(Tensor(images)).numpy().astype(np.float32)


_WRITERS = {"mindir": _write_mindir, "onnx": _write_onnx, "safetensors": _write_safetensors}
_READERS = {"mindir": _read_mindir, "onnx": _read_onnx, "safetensors": _read_safetensors}
