"""The figures are the mathematics of the arrays; activations and gradients are those of the net, at the right layer."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from mindspore import Tensor, ops
from tensorboardX.proto.event_pb2 import Event

from resnet_fn.config.cli import UsageError
from resnet_fn.inspect import __main__ as inspect
from resnet_fn.inspect import inspection
from resnet_fn.inspect.statistics import compare_arrays, figures
from resnet_fn.models import create_model
from resnet_fn.recipes import recipe
from resnet_fn.weights.files import write_arrays
from resnet_fn.weights.names import rename

pytestmark = pytest.mark.usefixtures("device")

MODEL = ["--recipe", "digits", "--model", "resnet8"]


def written(file: str, style: str = "ours", **changes) -> dict[str, np.ndarray]:
    """A resnet8 for the digits, with statistics that show something; the same at every call."""
    rng = np.random.default_rng(0)
    net = create_model("resnet8", num_classes=10, in_channels=1)
    arrays = {p.name: (rng.random(p.shape) * 0.1 + 0.2).astype(np.float32) for p in net.get_parameters()}
    arrays |= {name: array - 0.25 for name, array in arrays.items() if name.endswith("weight")}
    arrays = {name: changes.get(name, array).astype(np.float32) for name, array in arrays.items()}
    write_arrays(file, {rename(name, style, True): array for name, array in arrays.items()})
    return arrays


def subject(file: str = "a.safetensors") -> inspection.InspectedNet:
    fields = {**vars(recipe("digits")), "model": "resnet8", "label_smoothing": 0.0}
    return inspection.open_net(file, type(recipe("digits"))(**fields))


def test_figures_are_those_of_the_array():
    row = figures("a", np.array([[3.0, -4.0], [0.0, 1.0]], np.float32))
    assert (row.shape, row.dtype, row.count, row.mean, row.min, row.max) == ((2, 2), "float32", 4, 0.0, -4.0, 3.0)
    assert (row.std, row.norm) == pytest.approx((6.5**0.5, 26**0.5), rel=1e-15)
    assert (row.zeros, row.not_finite) == (0.25, 0)
    broken = figures("a", np.array([np.nan, np.inf, 2.0, 4.0]))
    assert (broken.mean, broken.max, broken.not_finite) == (3.0, 4.0, 2)


def test_differences_are_largest_first():
    ours = {
        "a": np.ones(4),
        "b": np.ones(4),
        "c": np.ones(4),
        "d": np.ones(2),
        "e": np.ones(1),
        "n": np.array([np.nan]),
    }
    theirs = {**ours, "a": np.array([1, 1, 1, 1.1]), "b": np.array([1, 1, 1, 3.0]), "d": np.ones(3), "f": np.ones(1)}
    del theirs["e"]
    found = compare_arrays(ours, theirs)
    assert [item.name for item in found.differences] == ["b", "a"]
    assert found.differences[0].relative == pytest.approx(2 / 12**0.5)
    assert (found.differences[0].ours, found.differences[0].theirs, found.differences[0].place) == (1.0, 3.0, (3,))
    assert (found.same, found.missing, found.unexpected) == (2, ["f"], ["e"])
    assert found.shapes == ["d (2,) here, (3,) there"]


def test_command_shows_every_parameter(capsys):
    arrays = written("a.safetensors", "torchvision")
    assert inspect.main(["a.safetensors", "--json", "a.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a.safetensors: torchvision names"
    assert lines[1].split() == ["parameter", "shape", "dtype", "mean", "std", "min", "max", "norm"]
    assert lines[-1] == f"47 arrays, {sum(array.size for array in arrays.values()):,} values"
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:-1]}
    assert rows.keys() == arrays.keys()
    weight = arrays["layer2.0.conv1.weight"].astype(np.float64)
    expected = weight.mean(), weight.std(), weight.min(), weight.max(), (weight**2).sum() ** 0.5
    assert rows["layer2.0.conv1.weight"] == ["32x16x3x3", "float32", *(f"{value:.3e}" for value in expected)]
    stored = {row["name"]: row for row in json.loads(Path("a.json").read_text())["parameters"]}
    assert stored["layer2.0.conv1.weight"]["mean"] == pytest.approx(weight.mean(), rel=1e-12)


@pytest.mark.parametrize("ending", ["safetensors", "ckpt", "pth"])
def test_command_compares_frameworks(ending, capsys):
    if ending == "pth":
        pytest.importorskip("torch", reason="writing .pth needs torch")
    ours = written("a.safetensors")
    theirs = {name: ours[name].copy() for name in ("fc.bias", "bn1.moving_mean")}
    theirs["fc.bias"][4] = 7
    theirs["bn1.moving_mean"][0] += 0.125
    written(f"b.{ending}", "torchvision", **theirs)
    assert inspect.main(["a.safetensors", f"b.{ending}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:5]] == ["fc.bias", "bn1.moving_mean"]
    assert lines[3].split()[4:] == [f"{ours['fc.bias'][4]:.5e}", "7.00000e+00", "[4]"]
    assert lines[5:] == ["45 of 47 parameters that both have are equal"]


def test_unknown_names_and_useless_weights_are_shown_all_the_same(capsys):
    write_arrays("a.safetensors", {"encoder.weight": np.array([1, np.nan], np.float32)})
    assert inspect.main(["a.safetensors"]) == 0
    shown = capsys.readouterr()
    assert "a.safetensors: names of its own" in shown.out
    assert "1 NOT FINITE" in shown.out
    assert "names such as encoder.weight are of no known ResNet" in shown.err


def test_activations_are_the_nets():
    arrays = written("a.safetensors")
    seen = {}
    look = subject()
    count, rows = inspection.activations(look, 5, lambda name, values: seen.update({name: values}))
    assert (count, [row.name for row in rows]) == (5, list(seen))
    assert list(seen)[:5] == ["conv1", "bn1", "relu", "maxpool", "layer1.0.conv1"]
    assert seen["layer3.0.relu (2)"].shape == (5, 64, 4, 4)
    # Evaluation mode: bn1 is an affine map by the stored statistics.
    scale = arrays["bn1.gamma"] / np.sqrt(arrays["bn1.moving_variance"] + 1e-5)
    shift = arrays["bn1.beta"] - arrays["bn1.moving_mean"] * scale
    expected = seen["conv1"] * scale[:, None, None] + shift[:, None, None]
    np.testing.assert_allclose(seen["bn1"], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(seen["relu"], np.maximum(seen["bn1"], 0))
    pooled = seen["layer3.0"].mean((2, 3))
    np.testing.assert_allclose(seen["fc"], pooled @ arrays["fc.weight"].T + arrays["fc.bias"], rtol=1e-4, atol=1e-4)
    for parameter in look.net.get_parameters():
        assert parameter.asnumpy().tobytes() == arrays[parameter.name].tobytes()


def test_gradients_obey_the_chain_rule():
    """Each at its layer: what a bias or a beta gets is the sum of the gradient at its layer's output."""
    arrays = written("a.safetensors")
    look = subject()
    layers, parameters = {}, {}
    found = inspection.gradients(
        look,
        6,
        lambda name, values: layers.update({name: values}),
        lambda name, values: parameters.update({name: values}),
    )
    assert found.samples == 6
    assert [row.name for row in found.layers][:3] == ["conv1", "bn1", "relu"]
    assert [row.name for row in found.layers][-2:] == ["layer3.0", "fc"]
    assert [row.name for row in found.parameters] == [p.name for p in look.net.trainable_params()]
    # Softmax minus one-hot over n, for cross-entropy without smoothing: each row sums to zero, the norm follows.
    images, labels = inspection.make_feed(look.dataset, look.recipe).batch(0)
    look.net.set_train(True)
    probabilities = ops.softmax(look.net(Tensor(images[:6]))).asnumpy()
    one_hot = np.eye(10, dtype=np.float32)[labels[:6]]
    np.testing.assert_allclose(layers["fc"], (probabilities - one_hot) / 6, atol=1e-6)
    picked = probabilities[np.arange(6), labels[:6]].astype(np.float64)
    assert found.loss == pytest.approx(-np.log(picked).mean(), rel=1e-5)
    np.testing.assert_allclose(parameters["fc.bias"], layers["fc"].sum(0), atol=1e-6)
    norms = [name.removesuffix(".beta") for name in arrays if name.endswith(".beta")]
    assert len(norms) == 9
    for name in norms:
        given = layers[name].sum((0, 2, 3), dtype=np.float64)
        np.testing.assert_allclose(parameters[f"{name}.beta"], given, rtol=1e-3, atol=1e-6, err_msg=name)
    # The same ReLU runs twice: the second call's gradient is the block's.
    np.testing.assert_array_equal(layers["layer2.0.relu (2)"], layers["layer2.0"])
    bias = arrays["fc.bias"].astype(np.float64)
    assert found.relative["fc.bias"] == pytest.approx(
        np.linalg.norm(parameters["fc.bias"].astype(np.float64)) / np.linalg.norm(bias), rel=1e-12
    )


def test_looking_changes_nothing():
    arrays = written("a.safetensors")
    look = subject()
    inspection.gradients(look, 4)
    for parameter in look.net.get_parameters():
        assert parameter.asnumpy().tobytes() == arrays[parameter.name].tobytes(), parameter.name


def histograms(folder: str) -> dict[str, object]:
    """Tag → histogram, from TensorBoard's records: length, its checksum, event, its checksum."""
    (path,) = Path(folder).iterdir()
    data, found, start = path.read_bytes(), {}, 0
    while start < len(data):
        (size,) = struct.unpack_from("<Q", data, start)
        event = Event.FromString(data[start + 12 : start + 12 + size])
        found |= {value.tag: value.histo for value in event.summary.value}
        start += size + 16
    return found


def tag(kind: str, name: str) -> str:
    return f"{kind}/{name}".replace(" (2)", ".call2")


def test_histograms_hold_the_arrays(capsys):
    arrays = written("a.safetensors")
    assert inspect.main(["a.safetensors", "--out-dir", "weights"]) == 0
    found = histograms("weights")
    assert found.keys() == {f"weights/{name}" for name in arrays}
    weight = arrays["fc.weight"].astype(np.float64)
    histogram = found["weights/fc.weight"]
    assert (histogram.num, histogram.min, histogram.max) == (weight.size, weight.min(), weight.max())
    assert histogram.sum == pytest.approx(weight.sum(), rel=1e-4)
    capsys.readouterr()
    flags = ["--activations", "--gradients", "--batch-size", "3", "--out-dir", "inside", "--json", "a.json"]
    assert inspect.main(["a.safetensors", *flags, *MODEL]) == 0
    shown = capsys.readouterr().out
    assert "activations after update 0, evaluation mode, 3 test images" in shown
    assert "gradients after update 0, training mode, 3 samples of the next batch, loss " in shown
    found = histograms("inside")
    stored = json.loads(Path("a.json").read_text())
    for row in stored["activations"]:
        histogram = found.pop(tag("activations", row["name"]))
        assert (histogram.num, histogram.min, histogram.max) == (np.prod(row["shape"]), row["min"], row["max"])
    for kind, rows in (("gradients", "parameters"), ("output_gradients", "layers")):
        for row in stored["gradients"][rows]:
            assert found.pop(tag(kind, row["name"])).max == row["max"]
    assert not found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.pth", "--batch-size", "3"], "--batch-size goes with --activations or --gradients; give one of them"),
        (["a.pth", "b.pth", "--gradients"], "--activations, --gradients and --out-dir look at one checkpoint; leave"),
        (["a.pth", "--activations"], "a weight file knows neither its data nor its net; give --recipe NAME"),
        ([".", "--activations", *MODEL], "--recipe, --model and --stem go with a weight file; a checkpoint knows"),
        (["a.pth", "--gradients", "--batch-size", "0", *MODEL], "--batch-size: 0 is too small; give 1 or more"),
        (["a.pth", "--gradients", "--recipe", "digit"], "recipe: 'digit' is unknown; did you mean digits?"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(UsageError) as error:
        inspect.main(arguments)
    assert str(error.value).startswith(message)
