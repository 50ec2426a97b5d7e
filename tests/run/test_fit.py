"""`fit` with a caller's net, arrays and loss. (On two workers: test_agreement.)"""

import csv
import dataclasses
import importlib
import json
import shutil
from functools import partial
from pathlib import Path

import mindspore
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from resnet_fn.checkpoint.folder import load_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe import Recipe
from resnet_fn.data.sources.load import open_dataset
from resnet_fn.models import build_net
from resnet_fn.run.fit import fit
from resnet_fn.run.loop import train
from resnet_fn.weights.load import convert_weights, load_weights

pytestmark = pytest.mark.usefixtures("device")

PLAIN = Recipe(model="resnet8", image_size=8, epochs=1, batch_size=240)
SETTINGS = {"epochs": 2, "batch_size": 240, "learning_rate": 0.05, "progress": False}


def pairs(recipe=PLAIN):
    """The digits as their net gets them, float32 [N, 1, 8, 8], and their labels: (training,
    validation).
    """
    dataset = open_dataset(recipe)
    splits = (dataset.train, dataset.test)
    return [
        (
            next(split.eval_images([np.arange(len(split))], dataset.input)),
            split.labels.astype(np.int64),
        )
        for split in splits
    ]


def make_net(outputs=10, seed=3):
    mindspore.set_seed(seed)
    convolution = nn.Conv2d(1, 4, 3, pad_mode="pad", padding=1)
    return nn.SequentialCell(
        convolution, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dense(256, outputs)
    )


def twice(outputs, targets):
    """Twice the cross-entropy, in float64."""
    return 2.0 * ops.cross_entropy(outputs, targets).astype(mindspore.float64)


def squared_error(outputs, targets):
    return ops.square(outputs - targets).mean()


def with_sine(pair):
    """Targets that are no classes: float32 [N, 2], of the digit."""
    return pair[0], np.stack([pair[1] / 10, np.sin(pair[1])], 1)


def assert_last_weights(net, result):
    last = RunFolder(result.run).newest()
    assert last.state["update"] == result.updates
    for parameter in net.get_parameters():
        assert np.array_equal(parameter.asnumpy(), last.weights[parameter.name])


def outputs_of(net, inputs):
    net.set_train(False)
    return net(Tensor(inputs)).asnumpy().astype(np.float64)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, device):
    """A run with a loss of one's own, BatchNorm, Adam and a moving average; its result and net.

    Not to be changed.
    """
    net = make_net()
    folder = tmp_path_factory.mktemp("own") / "run"
    settings = {**SETTINGS, "out_dir": str(folder), "checkpoint_every": 4, "keep_last": 9}
    settings |= {"optimizer": "adamw", "learning_rate": 0.003, "nesterov": False, "ema": 0.8}
    return fit(net, *pairs(), twice, **settings), net, settings


def test_fit_and_train_compute_the_same_bits(events, last_state):
    train(PLAIN, RunOptions(out_dir="recipe", progress=False))
    net = build_net(PLAIN, open_dataset(PLAIN).input)
    fit(net, *pairs(), epochs=1, batch_size=240, out_dir="own", progress=False)
    for kind in ("train", "eval"):
        times = {"images_per_second", "data_seconds", "step_seconds", "memory_mb"}
        for a, b in zip(events("recipe", kind), events("own", kind), strict=True):
            assert {k: a[k] for k in a.keys() - times} == {k: b[k] for k in b.keys() - times}
    assert last_state("recipe")[1] == last_state("own")[1]
    assert convert_weights("own", "own.ckpt", "ours")["model"] == "resnet8"


def test_an_interrupted_run_resumes_to_the_bit(finished, cut_after, events, last_state):
    whole, _, settings = finished
    shutil.copytree(whole.run, "copy")
    cut_after("copy", 4)  # within its first epoch
    resumed = fit(make_net(seed=9), *pairs(), twice, **settings | {"out_dir": "copy"})
    assert resumed == dataclasses.replace(whole, run=Path("copy"))
    for a, b in zip(events(whole.run, "train"), events("copy", "train"), strict=True):
        assert (a["update"], a["loss"]) == (b["update"], b["loss"])
    assert resumed.history["eval"] == whole.history["eval"]
    assert last_state("copy")[1] == last_state(whole.run)[1]


def test_other_data_or_another_net_is_rejected(finished, raises_line):
    settings = finished[2]
    (training, validation) = pairs()
    changed = training[0].copy()
    changed[5, 0, 0, 0] += 1
    linear = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 10))
    values = "other values in the training or validation arrays"
    longer = f"fit(…, resume={settings['out_dir']!r}, epochs=3), without out_dir"
    for changes, parts in (
        (
            {"train": (changed, training[1])},
            ("resume: another training set", values, "the same arrays"),
        ),
        ({"validation": (validation[0], validation[1][::-1])}, (values,)),
        ({"net": make_net(12)}, ("resume", "classes")),
        ({"net": linear}, ("belongs to another net", "1.weight", "give")),
        (
            {"loss": "cross_entropy"},
            ("resume:", "loss 'own' → 'cross_entropy'", "call fit with the old settings"),
        ),
        ({"epochs": 3}, ("resume:", "epochs 2 → 3", longer)),
    ):
        usual = {"net": make_net(), "train": training, "validation": validation, "loss": twice}
        with raises_line(*parts):
            fit(**{**usual, **settings, **changes})


def test_targets_may_be_numbers_instead_of_classes(events):
    """Numbers instead of classes: the loss is the metric, and the best checkpoint has the
    lowest.
    """
    training, validation = map(with_sine, pairs())
    net = make_net(2)
    settings = {**SETTINGS, "epochs": 3, "out_dir": "run", "norms_every": 5}
    result = fit(net, training, validation, squared_error, **settings)
    losses = [event["loss"] for event in events("run", "eval")]
    assert set(result.last) == {"event", "update", "epoch", "loss", "count"}
    assert result.best["loss"] == min(losses)
    error = ((outputs_of(net, validation[0]) - validation[1]) ** 2).mean()
    assert result.last["loss"] == pytest.approx(error, rel=1e-5)
    trained = events("run", "train")
    assert trained[-1]["loss"] < 0.5 * trained[0]["loss"]
    assert not any("accuracy" in event for event in trained)
    assert set(trained[4]["norms"]["weight"]) == {"0", "1", "4"}  # the cells of the net
    assert not Path("run/report").exists()
    settings = json.loads(Path("run/config.json").read_text())["recipe"]
    chosen = {"monitor": "loss", "loss": "own", "label_smoothing": 0.0}
    assert chosen.items() <= settings.items()


def test_fit_writes_a_complete_run_folder(finished):
    result, net, _ = finished
    assert len([*result.run.glob("events.out.tfevents*")]) == 1
    settings = json.loads((result.run / "config.json").read_text())["recipe"]
    assert {"model": "own", "dataset": "own", "loss": "own"}.items() <= settings.items()
    report = json.loads((result.run / "report/report.json").read_text())
    assert result.best == {"top1": report["top1"], "update": report["checkpoint"]["update"]}
    evaluations = {event["update"]: event for event in result.history["eval"]}
    best = evaluations[result.best["update"]]
    assert report["loss"] == pytest.approx(best["loss"] / 2, rel=1e-6)  # the cross-entropy
    rows = (result.run / "report/predictions.csv").read_text().splitlines()
    losses = [float(row["loss"]) for row in csv.DictReader(rows)]
    assert len(losses) == len(pairs()[1][1])
    assert any(row["samples"] for row in report["gallery"])
    assert np.mean(losses) == pytest.approx(report["loss"], rel=1e-5)
    assert len(set(losses)) > 300
    page = (result.run / "report/report.html").read_text()
    assert "Confusion matrix" in page
    assert "<span>cross-entropy</span>" in page
    assert_last_weights(net, result)  # the report has put them back


def test_weights_load_into_the_net_again(finished):
    """By `load_weights`, with the moving average; and by MindSpore alone, without."""
    result, _, _ = finished
    net = make_net(seed=9)
    (inputs, labels) = pairs()[1]
    load_weights(net, result.best_checkpoint)
    assert (outputs_of(net, inputs).argmax(1) == labels).mean() == result.best["top1"]
    file = str(result.best_checkpoint / "weights.safetensors")
    missing = mindspore.load_param_into_net(
        net, mindspore.load_checkpoint(file, format="safetensors")
    )
    assert missing == ([], [])
    saved = load_checkpoint(result.best_checkpoint).weights
    for parameter in net.get_parameters():
        assert np.array_equal(parameter.asnumpy(), saved[parameter.name])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("evaluate", ["RUN"]),
        ("predict", ["RUN", "picture.png"]),
        ("export", ["RUN", "--format", "mindir", "--out", "net.mindir"]),
        ("train", ["--resume", "RUN"]),
        ("train", ["--recipe", "RUN/recipe.toml"]),
    ],
)
def test_commands_reject_runs_of_fit(finished, raises_line, command, words):
    words = [word.replace("RUN", str(finished[0].run)) for word in words]
    Path("picture.png").touch()
    with raises_line("model:", "passed to resnet_fn.fit", "call fit again", "load_weights"):
        importlib.import_module(f"resnet_fn.{command}").main(words)


def of(**changes):
    """Arguments of `fit`: 8 samples [3] of 2 classes, changed."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(8, 3))
    labels = np.arange(8) % 2
    pair = inputs, labels
    usual = {"net": nn.Dense(3, 2), "train": pair, "validation": pair, "batch_size": 4}
    return usual | changes


X = np.zeros((8, 3), np.float32)
Y = np.arange(8) % 2
NO_CLASSES = {"train": (X, X), "validation": (X, X), "loss": squared_error}
NAN = np.where(np.arange(24).reshape(8, 3) == 7, np.nan, 0)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"train": X}, ["train: must be a pair"]),
        ({"train": {"x": X, "y": Y}}, ["train: must be a pair", "is a dict"]),
        (
            {"train": ([X, X[:, :2]], Y)},
            ["train: has 2 arrays of inputs", "join", "own_loop.md"],
        ),
        ({"train": ({"a": X, "b": X}, Y)}, ["train: has 2 arrays of inputs", "join"]),
        ({"train": (X, X, Y)}, ["train: must be a pair", "there are 3 arrays", "join"]),
        ({"validation": None}, ["validation: must be a pair", "is None"]),
        (
            {"train": (X, Y.astype(str))},
            ["train: targets are <u21 [8], which are texts", "np.unique"],
        ),
        (
            {"train": (X, Y[:, None]), "validation": (X, Y[:, None])},
            ["train: targets are int64 [8, 1]", "[:, 0]"],
        ),
        (
            {"train": (X, np.eye(2)[Y]), "validation": (X, np.eye(2)[Y])},
            ["train: targets are", "argmax(1)"],
        ),
        (
            {"train": (X, Y * 1.0), "validation": (X, Y * 1.0)},
            ["train: targets are float32 [8]", "astype(int)"],
        ),
        ({"train": (X, Y[:7])}, ["train: has 8 inputs and 7 targets"]),
        ({"train": (X[:0], Y[:0])}, ["train: inputs are float32 [0, 3]; give"]),
        ({"train": (X.astype(str), Y)}, ["train: inputs are <u32 [8, 3]", "numbers"]),
        ({"train": ([[1, 2], [3]], [0, 1])}, ["train: inputs are not an array"]),
        ({"train": (NAN, Y)}, ["train: inputs are not finite in 1 samples, first in sample 2"]),
        (
            {"validation": (X, NAN)},
            ["validation: targets are not finite in 1 samples, first in sample 2"],
        ),
        (
            {"validation": (X[:, :2], Y)},
            ["validation: inputs of a sample must be float32 [3]", "they are float32 [2]"],
        ),
        ({"train": (X, Y - 100)}, ["train: sample 0 has label -100", 'targets.astype("float32")']),
        ({"validation": (X, Y * 2)}, ["validation: sample 1 has label 2, outside 0..1"]),
        ({"train": (X, Y + 2**40)}, [f"train: sample 0 has label {2**40}", "fix the labels"]),
        (
            {"train": (X.astype(">i4") - 2**17, Y), "validation": (X, Y)},
            ["must be int32 [3], as in train"],
        ),
        ({"train": (X.astype(np.longdouble), Y)}, ["train: inputs are", "128 [8, 3]", "64 bits"]),
        (
            {**NO_CLASSES, "loss": "cross_entropy"},
            ["train: targets are float32 [8, 3], but cross_entropy takes"],
        ),
        ({"net": nn.Dense(4, 2)}, ["net: the call fails with inputs float32 [2, 3]"]),
        ({"net": nn.Dense}, ["net: Dense is a class", "Dense(…)"]),
        ({"net": np.sin}, ["net: the function sin is not an nn.Cell", "docs/migrating.md"]),
        (
            {"loss": nn.CrossEntropyLoss},
            ["loss: CrossEntropyLoss is a class", "CrossEntropyLoss()"],
        ),
        (
            {"loss": lambda a, b: squared_error(a, b)},
            ["loss: MindSpore cannot compile this lambda", "def", "pynative"],
        ),
        ({"optimizer": nn.Momentum}, ["optimizer:", "is not a text; use one of sgd, adam"]),
        ({"net": nn.ReLU()}, ["net: ReLU has no parameters"]),
        (
            {"net": nn.SequentialCell(nn.Dense(3, 2), nn.Softmax(0), nn.Flatten(0))},
            ["net: the output is float32 [4]"],
        ),
        (
            {"net": nn.Dense(3, 1)},
            ["net: the output is float32 [2, 1]", 'targets.astype("float32")'],
        ),
        ({"loss": nn.BCEWithLogitsLoss()}, ["loss: the call fails", 'targets.astype("float32")']),
        (
            {"loss": nn.SequentialCell(nn.Dense(2, 1))},
            ["loss: SequentialCell has parameters to train"],
        ),
        ({"loss": 3}, ["loss: 3 is neither"]),
        (
            {"loss": nn.MSELoss("none"), "train": (X, X), "validation": (X, X)},
            ["loss: the call fails"],
        ),
        (
            {"loss": nn.CrossEntropyLoss(reduction="none")},
            ["loss: the result is float32 [2]", "mean"],
        ),
        (
            {"loss": twice, "label_smoothing": 0.1},
            ["loss: 'own'", "neither label_smoothing nor class_weights"],
        ),
        (
            {"loss": twice, "class_weights": "balanced"},
            ["loss: 'own'", "neither label_smoothing nor class_weights"],
        ),
        ({"loss": [].append}, ["loss: ", "fails"]),
        ({"model": "resnet18"}, ["model:", "leave it out"]),
        ({"monitor": "map"}, ["monitor: 'map'", "give top1, macro_f1 or loss"]),
        (
            {"loss_scale": 8.0},
            ["loss_scale: this setting is only for this package's data sets and nets"],
        ),
        ({"max_rotation": 10}, ["max_rotation: 10.0 is for this package's data sets and nets"]),
        ({"data_dir": "x"}, ["data_dir: 'x' is for this package's data sets and nets"]),
        ({"out_dirr": "x"}, ["fit: unknown setting 'out_dirr'; did you mean out_dir"]),
        ({"pretrained": True}, ["fit: unknown setting 'pretrained'; use one of accumulate"]),
        ({"model_ema": True}, ["fit: unknown setting 'model_ema'; give ema 0.9999"]),
        ({"batch_size": 9}, ["batch_size: 9 is more than the 8 training samples; give at most 8"]),
        (
            {**NO_CLASSES, "sampling": "balanced"},
            ["sampling: 'balanced' needs classes, but targets are float32"],
        ),
        (
            {**NO_CLASSES, "monitor": "top1"},
            ["monitor: 'top1' needs classes, but targets are float32 [8, 3]"],
        ),
    ],
)
def test_arguments_that_cannot_work_are_one_line(raises_line, changes, parts):
    with raises_line(*parts):
        fit(**of(**changes))
    assert not Path("runs").exists()


def test_pytorch_objects_are_rejected_with_what_to_give(raises_line):
    torch = pytest.importorskip("torch", reason="gives fit its objects")

    class Mine(torch.utils.data.Dataset):
        def __getitem__(self, index):
            return torch.zeros(3), index % 2

    cases = (
        (
            {"net": torch.nn.Linear(3, 2)},
            ["net: a Linear of torch is not an nn.Cell", "docs/migrating.md"],
        ),
        (
            {"loss": torch.nn.CrossEntropyLoss()},
            ["loss: a CrossEntropyLoss of torch", "'cross_entropy'"],
        ),
        (
            {"loss": torch.nn.functional.cross_entropy},
            ["loss: the function cross_entropy of torch", "give"],
        ),
        ({"train": Mine()}, ["train: must be a pair", "a Mine of torch", "np.stack"]),
        (
            {"train": (torch.zeros(8, 3, requires_grad=True), Y)},
            ["train: inputs are not an array", "tensor.detach().cpu()"],
        ),
    )
    for changes, parts in cases:
        with raises_line(*parts):
            fit(**of(**changes))


def test_the_advice_for_pytorch_data_yields_right_arrays():
    """As the errors write it: `data` is a Dataset of samples, or a DataLoader of batches."""
    torch = pytest.importorskip("torch", reason="gives fit its data sets")
    dataset = torch.utils.data.TensorDataset(torch.rand(8, 3), torch.arange(8) % 2)
    for data in (dataset, torch.utils.data.DataLoader(dataset, batch_size=3)):
        kind = type(data).__name__
        with pytest.raises(ValueError, match=f"is a {kind} of torch; give ") as caught:
            fit(**of(train=data))
        inputs, targets = eval(str(caught.value).split("give ")[1], {"np": np, "data": data})
        assert np.array_equal(inputs, dataset.tensors[0])
        assert np.array_equal(targets, dataset.tensors[1])


def test_a_partial_trains_like_the_function_written_out(events):
    def scaled(factor, outputs, targets, *, plus):
        return factor * squared_error(outputs, targets) + plus

    def written_out(outputs, targets):
        return 2.0 * squared_error(outputs, targets) + 3.0

    x = np.random.rand(8, 3)
    y = np.random.rand(8, 2)
    for name, loss in (("partial", partial(scaled, 2.0, plus=3.0)), ("def", written_out)):
        net = nn.Dense(3, 2, weight_init="ones", has_bias=False)
        settings = {"batch_size": 4, "epochs": 2, "progress": False}
        fit(net, (x, y), (x, y), loss, **settings, out_dir=name)
    by_partial, by_def = (events(name, "train") for name in ("partial", "def"))
    assert [event["loss"] for event in by_partial] == [event["loss"] for event in by_def]


def test_uncompiled_nets_run_python_in_every_call(capsys):
    """`mode="pynative"`: the report, too, is of a net that cannot be compiled; here it cannot be
    written.
    """

    class Counting(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.SequentialCell(nn.Dropout(p=0.5), nn.Dropout(p=0.0), nn.Dense(3, 2))
            self.calls = []

        def construct(self, x):
            self.calls.append(x.asnumpy().shape)  # compiled, `asnumpy` would fail
            return self.dense(x)

    net = Counting()
    Path("run").mkdir()
    Path("run/report").touch()  # where a folder is to be
    result = fit(**of(net=net, epochs=1, mode="pynative", out_dir="run", progress=False))
    printed = capsys.readouterr()
    assert "own: 8 training and 8 validation samples, 2 classes, inputs float32 [3]" in printed.out
    assert "warning: dropout in dense.0: a checkpoint cannot restore" in printed.out
    assert "warning: no report of the run: report: run/report cannot be written" in printed.err
    # tried, trained, evaluated, reported
    assert net.calls == [(2, 3), (4, 3), (4, 3), (64, 3), (64, 3)]
    assert_last_weights(net, result)


def test_a_failed_float16_evaluation_leaves_weights_in_float32():
    """`process.ending_mixed_precision`: the moving average's end would write the weights back,
    rounded.
    """
    half = nn.Dense(3, 2).to_float(mindspore.float16)
    train = with_sine(pairs()[0])
    settings = {**SETTINGS, "ema": 0.9, "mode": "pynative", "epochs": 1, "out_dir": "run"}

    def loss(outputs, targets):
        return half(outputs) if len(targets) == 5 else squared_error(outputs, targets)

    with pytest.raises(ValueError, match="MatMul"):
        fit(make_net(2), train, [array[:69] for array in train], loss, **settings)
    weights = RunFolder(Path("run")).newest().weights
    assert any((array != array.astype(np.float16)).any() for array in weights.values())


def test_a_users_own_report_is_not_replaced(raises_line):
    """An error before the first update."""
    Path("run/report").mkdir(parents=True)
    Path("run/report/report.html").write_text("mine")
    with raises_line("out_dir: run/report/report.html exists", "give another path"):
        fit(make_net(), *pairs(), **SETTINGS, out_dir="run")
    assert [str(path) for path in Path("run").rglob("*.*")] == ["run/report/report.html"]
    assert Path("run/report/report.html").read_text() == "mine"
