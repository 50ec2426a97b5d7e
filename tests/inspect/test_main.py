"""The command `inspect`: tables, comparisons, wrong flags."""

import json
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.inspect import __main__ as inspect
from resnet_fn.inspect.statistics import compare_arrays, comparison_table
from resnet_fn.weights.files import write_arrays

pytestmark = pytest.mark.usefixtures("device")


def test_command_shows_every_parameter(write_resnet8, capsys):
    arrays = write_resnet8("a.safetensors", "torchvision")
    assert inspect.main(["a.safetensors", "--json", "a.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a.safetensors: torchvision names"
    assert lines[1].split() == ["parameter", "shape", "dtype", "mean", "std", "min", "max", "norm"]
    assert lines[-1] == f"47 arrays, {sum(array.size for array in arrays.values()):,} values"
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:-1]}
    assert rows.keys() == arrays.keys()
    weight = arrays["layer2.0.conv1.weight"].astype(np.float64)
    expected = weight.mean(), weight.std(), weight.min(), weight.max(), (weight**2).sum() ** 0.5
    assert rows["layer2.0.conv1.weight"] == [
        "32x16x3x3",
        "float32",
        *(f"{value:.3e}" for value in expected),
    ]
    with pytest.raises(ValueError, match=r"^/dev/full: cannot be written \(No space left"):
        inspect.main(["a.safetensors", "--json", "/dev/full"])
    stored = json.loads(Path("a.json").read_text())["parameters"]
    means = {row["name"]: row["mean"] for row in stored}
    assert means["layer2.0.conv1.weight"] == pytest.approx(weight.mean(), rel=1e-12)


def test_files_of_two_frameworks_are_compared(write_resnet8, capsys):
    ours = write_resnet8("a.safetensors")
    theirs = {name: ours[name].copy() for name in ("fc.bias", "bn1.moving_mean")}
    theirs["fc.bias"][4] = 7
    theirs["bn1.moving_mean"][0] += 0.125
    write_resnet8("b.ckpt", "torchvision", **theirs)
    assert inspect.main(["a.safetensors", "b.ckpt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[3:5]] == ["fc.bias", "bn1.moving_mean"]
    assert lines[3].split()[4:] == [f"{ours['fc.bias'][4]:.5e}", "7.00000e+00", "[4]"]
    assert lines[5:] == ["45 of 47 common parameters are equal"]


def test_comparing_another_net_is_one_error_line(write_resnet8, raises_line):
    write_resnet8("a.safetensors")
    write_arrays(
        "b.safetensors", {f"encoder.{place}": np.ones(2, np.float32) for place in range(3)}
    )
    with raises_line("OTHER: only 0 of 3 arrays match CHECKPOINT's 47 arrays in name and shape"):
        inspect.main(["a.safetensors", "b.safetensors"])


def test_unknown_names_and_nonfinite_weights_are_shown(capsys):
    write_arrays("a.safetensors", {"encoder.weight": np.array([1, np.nan], np.float32)})
    assert inspect.main(["a.safetensors"]) == 0
    shown = capsys.readouterr()
    assert "a.safetensors: unknown names" in shown.out
    assert "1 NOT FINITE" in shown.out
    assert "names such as encoder.weight belong to no known naming style" in shown.err


def test_histograms_hold_the_arrays(write_resnet8, board_events):
    arrays = write_resnet8("a.safetensors")
    assert inspect.main(["a.safetensors", "--out-dir", "weights"]) == 0
    values = [value for event in board_events("weights") for value in event.summary.value]
    found = {value.tag: value.histo for value in values}
    assert found.keys() == {f"weights/{name}" for name in arrays}
    weight = arrays["fc.weight"].astype(np.float64)
    histogram = found["weights/fc.weight"]
    shown = (histogram.num, histogram.min, histogram.max)
    assert shown == (weight.size, weight.min(), weight.max())
    assert histogram.sum == pytest.approx(weight.sum(), rel=1e-4)


def test_differences_are_largest_first():
    a, b = np.array([1, 1, 1, 1.1]), np.array([1, 1, 1, 3.0])
    same = {"c": a, "n": np.array([np.nan])}
    ones = dict.fromkeys("ab", np.ones(4))
    compared = compare_arrays(
        {**ones, **same, "d": np.ones(2), "e": a}, {"a": a, "b": b, **same, "d": np.ones(3), "f": a}
    )
    assert [item.name for item in compared.differences] == ["b", "a"]
    largest = compared.differences[0]
    assert largest.relative == pytest.approx(2 / 12**0.5)
    assert (largest.port, largest.reference, largest.place) == (1.0, 3.0, (3,))
    lines = comparison_table(compared)
    assert lines[:3] == [
        "only in OTHER (1): f",
        "not in OTHER (1): e",
        "other shapes (1): d (2,) here, (3,) there",
    ]
    assert lines[-1] == "2 of 4 common parameters are equal"
