"""What both sides are told to do."""

import dataclasses

import pytest

from resnet_fn.parity.traces.batches import make_batches
from resnet_fn.parity.traces.trace import Task, compressed_rates
from resnet_fn.recipes import recipe


def test_compressed_schedule_has_warm_up_peak_and_end():
    use = dataclasses.replace(recipe("digits"), epochs=10, warmup_epochs=4.0, learning_rate=1.0)
    assert compressed_rates(use, 5) == pytest.approx([0.5, 1.0, 1.0, 0.75, 0.25])
    assert Task(use, make_batches(5, 4, 1, 2, 3)).rates == compressed_rates(use, 5)


def test_batches_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match=r"^accumulate: 3 does not divide the batch of 4; give a divisor of 4$"):
        Task(recipe("digits"), make_batches(1, 4, 1, 2, 3), accumulate=3)


NOT_COMPARED = {
    **{"class_weights": "balanced", "head_learning_rate": 0.5, "layer_decay": 0.5, "freeze": "stem"},
    **{"train_only": "fc", "sync_batchnorm": True, "multi_label": True},
}


@pytest.mark.parametrize("name", NOT_COMPARED)
def test_what_the_reference_cannot_follow_is_refused_by_name(name):
    value = NOT_COMPARED[name]
    beside = {"loss": "bce", "label_smoothing": 0.0, "monitor": "map"} if name == "multi_label" else {}
    use = dataclasses.replace(recipe("imagenet_resnet50_v1"), **beside, **{name: value})
    with pytest.raises(ValueError) as error:
        Task(use, make_batches(1, 4, 1, 2, 3))
    assert str(error.value) == (
        f"recipe: the ladder does not compare {name} {value!r}; leave them out, or give another recipe"
    )


def test_what_a_recipe_would_drop_is_told():
    assert task_with(dropout=0.1, drop_path=0.05) == ["dropout=0.1", "drop_path=0.05"]
    assert task_with() == []


def task_with(**fields):
    return Task(dataclasses.replace(recipe("digits"), **fields), make_batches(1, 4, 1, 2, 3)).dropped
