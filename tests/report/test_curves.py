"""Curves of several runs: means, deviations, axes."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from resnet_fn.report.plots import draw_panel


def events(losses, scale=1):
    return [
        *(
            {"event": "train", "update": u * scale, "loss": v, "lr": 1e-6 * u}
            for u, v in enumerate(losses, 1)
        ),
        {"event": "eval", "update": 2 * scale, "loss": losses[1], "top1": 0.5},
    ]


def panel(number, lines):
    figure = Figure()
    axes = figure.add_subplot()
    draw_panel(axes, number, lines)
    figure.canvas.draw()
    return axes


def test_grouped_runs_show_mean_and_one_standard_deviation():
    axes = panel(
        0, {"seeds": [events([1.0, 4.0, 9.0]), events([3.0, 8.0])], "one": [events([5.0, None])]}
    )
    mean, alone = (
        next(line for line in axes.get_lines() if line.get_color() == f"C{of}") for of in (0, 1)
    )
    # the updates that both have
    assert list(zip(*mean.get_data(), strict=True)) == [(1, 2.0), (2, 6.0)]
    np.testing.assert_array_equal(alone.get_ydata(), [5.0, np.nan])  # a gap where it was not finite
    band = axes.collections[0].get_paths()[0].vertices
    assert [band[:, 1].min(), band[:, 1].max()] == pytest.approx([2 - 2**0.5, 6 + 8**0.5])


def test_axes_have_plain_numbers():
    axes = panel(2, {"a": [events([1.0, 3.0], 100_000)]})
    labels = [*axes.get_xticklabels(), *axes.get_yticklabels()]
    assert {"200,000", "0.000002"} <= {label.get_text() for label in labels}
    assert axes.xaxis.get_offset_text().get_text() == axes.yaxis.get_offset_text().get_text() == ""
