"""scripts/scaling_table.py against cases worked by hand, and docs/scaling.md against what it prints."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "scaling_table.py"
PAGE = ROOT / "docs" / "scaling.md"

_spec = importlib.util.spec_from_file_location("scaling_table", SCRIPT)
scaling = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(scaling)

SLOW = scaling.Links(node=10.0, network=2.0, node_latency=0.5, network_latency=3.0)


@pytest.mark.parametrize(("ranks", "share"), [(1, 0), (2, 1), (4, 3 / 2), (8, 7 / 4)])
def test_a_ring_sends_2_n_minus_1_nths(ranks, share):
    assert scaling.ring_bytes(80, ranks) == 80 * share


def test_ring_in_one_node_and_across_two():
    assert scaling.ring(80, 2, SLOW) == 80 / 10 + 2 * 0.5
    assert scaling.ring(80, 8, SLOW) == 80 * 7 / 4 / 10 + 14 * 0.5
    # 16 cards: 30 hops, of which 2 cross between the nodes; the network sets the pace.
    assert scaling.ring(80, 16, SLOW) == 80 * 15 / 8 / 2 + 28 * 0.5 + 2 * 3.0


@pytest.mark.parametrize("form", [scaling.two_level_ring, scaling.two_level_halving])
@pytest.mark.parametrize("cards", [2, 4, 8])
def test_two_levels_with_one_node_are_the_ring(form, cards):
    assert form(80, cards, SLOW) == pytest.approx(scaling.ring(80, cards, SLOW))


def test_two_levels_across_four_nodes():
    in_node = 80 * 7 / 4 / 10 + 14 * 0.5  # reduce-scatter and all-gather
    across = 10 * 3 / 2 / 2  # an eighth of the bytes, 2 · 3/4 of them
    assert scaling.two_level_ring(80, 32, SLOW) == pytest.approx(in_node + across + 6 * 3.0)
    assert scaling.two_level_halving(80, 32, SLOW) == pytest.approx(in_node + across + 4 * 3.0)  # 2 · log2 4 messages


def test_halving_needs_a_power_of_two():
    with pytest.raises(ValueError, match="cards: 24 are 3 nodes, no power of two; give 8, 16, 32, …"):
        scaling.two_level_halving(80, 24)


def test_resnet50_is_the_net_of_this_package():
    gradients = scaling.resnet50()
    assert len(gradients) == 161
    assert sum(gradient.values for gradient in gradients) == 25_557_032
    assert sum(gradient.work for gradient in gradients) == pytest.approx(4.09e9, rel=1e-3)
    from resnet_fn.models import create_model

    net = create_model("resnet50", num_classes=1000)
    assert sorted(g.values for g in gradients) == sorted(parameter.size for parameter in net.trainable_params())


def test_exposed_of_two_layers():
    """Backward: the second layer is done after 3 of 4 s, the first after 4. Each has 10 values of one byte."""
    layers = [scaling.Gradient(10, 1), scaling.Gradient(10, 3)]

    def late(seconds_per_byte, bucket):
        return scaling.exposed(layers, 1, 4.0, 8, lambda size, cards: size * seconds_per_byte, bucket)

    assert late(0.1, 100) == pytest.approx(2.0)  # one bucket of 20 bytes, sent at 4 s
    assert late(0.1, scaling.SINGLE_TENSORS) == pytest.approx(1.0)  # 3 → 4 s hidden, 4 → 5 s
    assert late(0.3, 10) == pytest.approx(5.0)  # 3 → 6 s, then 6 → 9 s: the first delays the second


def test_compute_goes_through_both_published_points():
    assert scaling.compute(32) == pytest.approx(32 / 1787)
    assert scaling.compute(256) == pytest.approx(256 / 2115)


def test_evaluation_goes_through_both_logs_and_stops_falling():
    assert scaling.evaluation(128, block=1) == pytest.approx(0.518, rel=0.02)  # 50,000 images, not 51,200
    assert scaling.evaluation(256, block=1) == pytest.approx(0.363, rel=0.02)
    assert scaling.evaluation(781) > scaling.evaluation(782) == scaling.evaluation(4096)


def test_the_page_has_what_the_script_prints():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, encoding="utf-8", check=True)
    page = PAGE.read_text(encoding="utf-8")
    printed = done.stdout.strip().split("\n\n")
    assert len(printed) == 5
    for table in printed:
        assert f"\n\n{table}\n\n" in page, f"docs/scaling.md is out of date; python {SCRIPT} prints\n{table}"
    # Right-aligned columns are the script's alone: no table of an older run stands beside them.
    assert page.count("---:") == done.stdout.count("---:")
