"""Who runs when, and what is made of the seconds; a side is a process that does what it is told."""

import pytest

from resnet_fn.benchmark.interleave import Side, interleave, ratios
from resnet_fn.runtime import versions


def test_every_other_round_goes_in_reverse_and_each_turn_gives_its_median():
    order = []

    def side(name, seconds):
        def run(steps):
            order.append((name, steps))
            return seconds.pop(0)

        return run

    runs = {"a": side("a", [[1.0, 9.0, 2.0], [3.0]]), "b": side("b", [[5.0, 7.0], [8.0, 8.0]])}
    assert interleave(runs, rounds=2, steps=3) == {"a": [2.0, 3.0], "b": [6.0, 8.0]}
    assert order == [("a", 3), ("b", 3), ("b", 3), ("a", 3)]


def test_ratios_are_taken_round_by_round():
    medians = {"ours": [1.0, 2.0, 4.0], "torch": [2.0, 3.0, 4.0], "other": [1.0, 1.0, 1.0]}
    assert ratios(medians) == {
        "torch": {"median": 1.5, "min": 1.0, "max": 2.0},
        "other": {"median": 0.5, "min": 0.25, "max": 1.0},
    }
    assert ratios(medians, ours="other")["ours"] == {"median": 2.0, "min": 1.0, "max": 4.0}


def test_a_side_trains_as_it_is_told_and_knows_its_memory():
    spec = {"model": "resnet8", "stem": "cifar", "batch_size": 2, "image_size": 8, "classes": 2, "threads": 1}
    with Side("ours", spec, ONEDNN_VERBOSE="1") as side:
        assert len(side.run(3)) == 3
        # MindSpore 2.7 and 2.8 had kernels that oneDNN's log does not show.
        assert any("convolution" in line for line in side.log) == versions.avx512_convolutions_are_slow()
    facts = side.facts
    assert facts["peak_bytes"] > 50 * 2**20
    assert 0 < facts["first_step_seconds"] < facts["ready_seconds"]


def test_a_side_that_cannot_run_says_why():
    with pytest.raises(ValueError, match=r"ours: cannot run here \(KeyError: 'threads'\); compare without it"):
        Side("ours", {})
