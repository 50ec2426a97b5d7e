"""What the half of a recipe about data refuses: field, value and fix."""

import pytest

from resnet_fn.config.recipe import Recipe


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dataset": "imagefolder", "crop_padding": 4}, "crop_padding: 4 is for sets in memory; give 0"),
        ({"dataset": "imagefolder", "max_rotation": 4.0}, "max_rotation: 4.0 is for sets in memory; give 0"),
        ({"policy": "trivialaugment"}, "policy: 'trivialaugment' needs colour images of 0..255, which the digits"),
        ({"repeats": 7}, "repeats: 7 does not divide the batch size 64"),
        ({"eval_size": 64, "eval_resize": 60}, "eval_resize: 60 is below the crop of 64; give 64 or more"),
        ({"erasing": 1.5}, r"erasing: 1.5 is not in \[0, 1\]"),
        ({"mixup": -1.0}, "mixup: -1.0 is negative; give 0 or more"),
        ({"crop_scale": 0.5}, "crop_scale: 0.5 is for sets of image files; leave it out"),
        ({"crop_scale": 0.0}, r"crop_scale: 0.0 is not in \(0, 1\]"),
    ],
)
def test_wrong_fields_name_value_and_fix(fields, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**fields)


@pytest.mark.parametrize(("noise", "message"), [(31.0, "is not in 0..30"), (1.0, "needs --policy randaugment")])
def test_noise_that_cannot_work_is_refused(noise, message):
    with pytest.raises(ValueError, match=f"policy_noise: {noise} {message}"):
        Recipe(dataset="synthetic", policy="trivialaugment", policy_noise=noise)
