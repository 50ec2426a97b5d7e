"""The evaluate command: what it refuses."""

import mindspore
import pytest

from resnet_fn import create_model
from resnet_fn.evaluate import main

SMALL = {"dataset": "imagefolder", "model": "resnet8", "image_size": 8, "eval_resize": 8}


def test_a_weight_file_is_scored_with_the_check_of_files_of_the_recipe_file(device, folder, write_recipe):
    mindspore.save_checkpoint(create_model("resnet8", num_classes=3), "net.ckpt")
    bad = folder / "val" / "bee" / "00 ü.JPEG"
    bad.write_bytes(bad.read_bytes()[:300])
    for check, message in (("auto", "1 of 9 validation files are bad"), ("no", "00 ü.JPEG: cannot be decoded")):
        recipe = write_recipe({**SMALL, "data_dir": str(folder), "check_files": check})
        with pytest.raises(ValueError, match=message):
            main(["--weights", "net.ckpt", "--recipe", recipe])
    assert sorted(path.name for path in folder.iterdir()) == ["train", "val"]  # nothing beside the data


def test_weights_for_other_classes_are_rejected_with_what_can_be_done(device, folder, write_recipe):
    mindspore.save_checkpoint(create_model("resnet8", num_classes=4), "net.ckpt")
    # More threads than there are CPUs here: how fast training reads is not for an evaluation.
    recipe = write_recipe({**SMALL, "data_dir": str(folder), "data_threads": 9999})
    with pytest.raises(
        ValueError, match=r"^net\.ckpt: .*fc\.weight \(4, 64\) instead of \(3, 64\).*train --weights"
    ) as error:
        main(["--weights", "net.ckpt", "--recipe", recipe])
    assert "--reset-head" not in str(error.value)  # which this command lacks
