import dataclasses

import pytest

from resnet_fn.config.cli import Parser, UsageError
from resnet_fn.config.fields import Settings, setting
from resnet_fn.config.gone import check_resume, translated
from resnet_fn.config.options import RunOptions
from resnet_fn.config.recipe_file import read_recipe_file


@dataclasses.dataclass(frozen=True, kw_only=True)
class Today(Settings):
    epochs: int = setting("data", 1, "passes")
    mode: str = setting("data", "graph", "how", choices=("graph", "pynative"))


def test_what_has_gone_is_left_out_or_replaced() -> None:
    old = {"epochs": 3, "mode": "split", "image_pipeline": "exact", "scan_cache": "off"}
    assert translated(Today, old) == {"epochs": 3, "mode": "graph"}
    assert translated(Today, {"mode": "pynative", "image_pipeline": "fast"}) == {"mode": "pynative"}
    assert translated(Today, {"image_pipeline": "fast"}, same_results=True) == {"image_pipeline": "fast"}


def test_a_flag_that_has_gone_says_what_does_its_work() -> None:
    gone = (("--no-scan-cache", "--no-check-files"), ("--image-pipeline", "torchvision"), ("--figure", "--report"))
    for flag, instead in gone:
        with pytest.raises(UsageError, match=f"{flag} has gone: .*{instead}"):
            Parser("train", "").parse([flag, "x"])
    with pytest.raises(ValueError, match="mode: 'split' has gone: graph"):
        RunOptions(mode="split")


def test_a_recipe_file_of_an_earlier_version_is_read(tmp_path) -> None:
    (tmp_path / "old.json").write_text('{"epochs": 3,\n"mode": "split"}')
    file = read_recipe_file(tmp_path / "old.json", {})
    assert file.checked().epochs == 3
    assert file.options.mode == "graph"
    assert "line 2: mode 'split' has gone" in file.notes[0]


@pytest.mark.parametrize(
    ("recipe", "feed", "why"),
    [
        ({"dataset": "imagefolder", "image_pipeline": "fast"}, {}, "fast"),
        ({"dataset": "mindrecord"}, {"data_threads": 2}, "fast"),
        ({"dataset": "imagefolder", "image_pipeline": "exact", "policy": "randaugment"}, {"samples": 8}, ""),
        ({"dataset": "cifar10", "policy": "autoaugment"}, {"samples": 8}, "policy"),
        ({"dataset": "cifar10", "policy": "autoaugment"}, {"samples": 8, "colour": "photos"}, ""),
        ({"dataset": "digits", "image_pipeline": "exact"}, {"samples": 8}, ""),
    ],
)
def test_a_run_that_would_see_other_pixels_does_not_go_on(recipe, feed, why) -> None:
    state = {"recipe": recipe, "feed": feed}
    if not why:
        check_resume(state, "runs/a")
        return
    with pytest.raises(ValueError, match=f"resume: runs/a: .*{why}.*--weights"):
        check_resume(state, "runs/a")
