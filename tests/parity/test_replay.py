"""One net in both frameworks agrees stage by stage; nets that cannot be compared are rejected."""

import pytest
from mindspore import nn

from resnet_fn.models import create_model
from resnet_fn.parity.batches import make_batches
from resnet_fn.parity.replay import assert_parity, compare_step
from resnet_fn.parity.show.titles import title_of_stage
from resnet_fn.recipes import recipe
from small_nets import Ours, Theirs, agrees, ladder_of, ours, stage_of, t, theirs, vector

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.slow
def test_resnet8_agrees_over_20_clipped_updates():
    from resnet_fn.parity.reference.nets import reference_net

    nets = create_model("resnet8", num_classes=10), reference_net("resnet8", num_classes=10)
    use = recipe("digits").changed(learning_rate=0.02, clip_norm=0.5)
    whole = {"initialisation": True, "quick": False, "mode": "graph"}
    ladder = agrees(*nets, make_batches(20, 8, 3, 16, 10), use, accumulate=2, **whole)
    bounds = {
        "eval forward": 1e-5,
        "gradients": 1e-4,
        "weights after update 5": 1e-3,  # of the changes
        "loss trajectory": 1e-3,
    }
    for name, most in {"weights": 0, **bounds}.items():
        assert max(item.relative for item in stage_of(ladder, name).differences) <= most, name
    assert {stage.verdict for stage in ladder.stages} == {"ok"}
    assert len(ladder.layers) == 2 * len({(layer.name) for layer in ladder.layers})
    assert ladder.settings == []
    assert stage_of(ladder, "gradient norm").differences[0].port > 0.5  # so that it did clip


def test_a_wrong_shape_stops_at_the_weights():
    net, module = Ours(nn.Sigmoid(), classes=4), Theirs(t.Sigmoid())
    ladder = ladder_of(net, module, [vector()])
    assert [title_of_stage(stage) for stage in ladder.stages] == ["inputs", "weights"]
    assert ladder.first_stage.hints == [
        "head.weight is (4, 8) in the port, (3, 8) in the reference",
        "head.bias is (4,) in the port, (3,) in the reference",
    ]


def pair(shift):
    """A port that takes off `shift` between two layers, and its reference, which takes off 0.1."""
    net = ours(lambda n, x: n.head(n.part(x) - shift), nn.Dense(8, 8))
    return net, theirs(lambda n, x: n.head(n.part(x) - 0.1), t.Linear(8, 8))


def test_assert_parity_shows_table_and_first_difference():
    options = {"batches": [vector()], "initialisation": False, "quick": True, "mode": "pynative"}
    with pytest.raises(AssertionError) as error:
        assert_parity(*pair(0.2), **options)
    text = str(error.value)
    assert text.startswith("the net differs from the reference, as the table shows\nstage  ")
    assert "first stage that differs: eval forward" in text
    assert "first layer that differs: head in evaluation mode" in text
    assert (
        "its input differs already and no earlier layer's output does: look at what happens between"
        in text
    )
    assert assert_parity(*pair(0.1), **options).agrees


def test_an_unknown_mode_is_an_error():
    with pytest.raises(ValueError, match=r"^mode: 'pynativ' is unknown; give graph or pynative$"):
        compare_step(None, None, make_batches(1, 4, 3, 8, 3), recipe("digits"), mode="pynativ")


def test_assert_parity_needs_batches_or_a_trace():
    net, module = pair(0.1)
    with pytest.raises(
        ValueError,
        match=r"^batches: a torch module needs batches; give one pair \(inputs, labels\)",
    ):
        assert_parity(net, module)
    with pytest.raises(
        ValueError,
        match=r"^batches, recipe: a trace has its own batches and recipe; leave both out$",
    ):
        assert_parity(net, "trace", [vector()])
    with pytest.raises(
        ValueError, match=r"^trace: there is no manifest.json; give the folder that"
    ):
        assert_parity(net, "trace")
