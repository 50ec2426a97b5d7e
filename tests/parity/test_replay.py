"""One net in both frameworks agrees stage by stage; nets that cannot be compared are rejected."""

import dataclasses

import pytest

from resnet_fn.models import create_model
from resnet_fn.parity.replay import assert_parity, compare_step
from resnet_fn.parity.report import table
from resnet_fn.parity.trace import make_batches
from resnet_fn.recipes import recipe

RECIPE = dataclasses.replace(recipe("digits"), learning_rate=0.02)
pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def resnet8(torch):
    from resnet_fn.parity.reference.nets import reference_net

    return create_model("resnet8", num_classes=10), reference_net("resnet8", num_classes=10)


@pytest.mark.slow
def test_resnet8_agrees_over_20_clipped_updates_in_micro_batches(resnet8):
    use = dataclasses.replace(RECIPE, clip_norm=0.5)
    ladder = compare_step(*resnet8, make_batches(20, 8, 3, 16, 10), use, accumulate=2)
    assert ladder.agrees, table(ladder)
    worst = {stage.name: max(item.relative for item in stage.differences) for stage in ladder.stages}
    assert worst["eval forward"] < 1e-5
    assert worst["gradients"] < 1e-4
    assert worst["weights after update 5"] < 1e-4
    assert worst["loss trajectory"] < 1e-3
    assert worst["weights"] == 0
    assert {stage.verdict for stage in ladder.stages} == {"ok"}
    assert len(ladder.layers) == 2 * len({(layer.name) for layer in ladder.layers})
    assert ladder.notes == []
    norm = next(stage for stage in ladder.stages if stage.name == "gradient norm").differences[0]
    assert norm.ours > 0.5  # so that it did clip


def test_a_missing_layer_stops_at_the_weights(ported, reference):
    ladder = compare_step(ported(classes=4), reference(), make_batches(1, 8, 3, 12, 4), RECIPE)
    assert [stage.name for stage in ladder.stages] == ["inputs", "weights"]
    assert ladder.first_stage.name == "weights"
    assert ladder.first_stage.hints == [
        "classify weight [4, 8], bias [4] has no counterpart in the reference",
        "the reference's head weight [5, 8], bias [5] has no counterpart here",
    ]


def test_an_assertion_shows_the_table_and_the_first_difference(ported, reference):
    torch_net, batches = reference(), make_batches(1, 8, 3, 12, 5)
    net, options = ported(shift=0.2), {"initialisation": False, "quick": True, "mode": "pynative"}
    with pytest.raises(AssertionError) as error:
        assert_parity(net, torch_net, batches, **options)
    text = str(error.value)
    assert text.startswith("the net does not compute what its reference does\nstage  ")
    assert "first stage that differs: eval forward" in text
    assert "first layer that differs: body (the reference's inner) in evaluation mode" in text
    assert "its input differs already and no earlier layer's output does: look at what happens between" in text
    assert assert_parity(ported(), torch_net, batches, **options).agrees


def test_an_assertion_takes_a_module_with_batches_or_a_trace(ported, reference):
    with pytest.raises(ValueError, match=r"^batches: are needed beside a module; give one \(inputs, labels\) for each"):
        assert_parity(ported(), reference())
    with pytest.raises(ValueError, match=r"^batches, recipe: the trace has its own; leave them out$"):
        assert_parity(ported(), "trace", make_batches(1, 8, 3, 12, 5))
    with pytest.raises(ValueError, match=r"^trace: there is no manifest.json; give the folder that"):
        assert_parity(ported(), "trace")
