"""Updates through MindSpore's C++ pipeline: the same bits for equal threads and workers, nothing left behind."""

import dataclasses
from pathlib import Path

import pytest

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.feed import make_feed
from resnet_fn.data.sources.load import load_dataset
from resnet_fn.data.sources.scan import check_files

FIELDS = {"dataset": "imagefolder", "image_size": 24, "batch_size": 4, "flip": True, "erasing": 0.5, "epochs": 3}
RECIPE = Recipe(**FIELDS, image_pipeline="fast")


@pytest.fixture
def photographs(folder):
    dataset = check_files(load_dataset(RECIPE, str(folder)), "error")
    return dataset


def bytes_of(feed, updates):
    return [feed.batch(update)[0].tobytes() for update in updates]


def test_a_resume_inside_an_epoch_reads_only_its_own_stretch(tmp_path, make_photograph, encode):
    """1,024 images have a pipeline; what lay before the stretch is not even there any more."""
    files = [encode(make_photograph(seed)) for seed in range(7)]
    for name in ("bee", "cat"):
        for number in range(1200):
            path = tmp_path / "train" / name / f"{number}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[number % 7])
        (tmp_path / "val" / name).mkdir(parents=True)
        (tmp_path / "val" / name / "0.JPEG").write_bytes(files[0])
    recipe = dataclasses.replace(RECIPE, batch_size=100)  # 24 updates of 100; stretches of 10
    dataset = check_files(load_dataset(recipe, str(tmp_path)), "error")
    walk = make_feed(dataset, recipe)
    whole = bytes_of(walk, range(24))
    for update in range(10):
        for index in walk.indices(update):
            Path(dataset.train.path(index)).unlink()
    assert bytes_of(make_feed(dataset, recipe), range(13, 24)) == whole[13:]
    assert bytes_of(make_feed(dataset, recipe), [20]) == whole[20:21]
    assert len(set(whole)) == 24


def test_every_augmentation_repeats(photographs):
    for fields in (
        {"policy": "trivialaugment"},
        {"policy": "randaugment"},
        {"policy": "randaugment", "policy_noise": 1.5},
        {"policy": "autoaugment"},
        {"color_jitter": 0.4},
    ):
        recipe = dataclasses.replace(RECIPE, **fields)
        one, two = (
            bytes_of(make_feed(photographs, recipe), range(6)),
            bytes_of(make_feed(photographs, recipe), range(6)),
        )
        assert one == two
        assert one != bytes_of(make_feed(photographs, RECIPE), range(6)), fields
