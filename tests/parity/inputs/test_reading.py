"""What PyTorch's and MindSpore's loaders, data sets and modules are as a side."""

import numpy as np
import pytest
from PIL import Image

from resnet_fn.parity.inputs.pictures import pictures_in
from resnet_fn.parity.inputs.reading import sample_of


@pytest.fixture
def dataset(torch):
    """dataset(count): a Dataset, whose sample i is full of i."""

    class Numbers(torch.utils.data.Dataset):
        def __init__(self, count):
            self.count = count

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            return np.full((3, 4, 4), index)

    return Numbers


def test_a_loaders_own_collate_fn_is_noted(side, dataset, torch):
    loader = torch.utils.data.DataLoader
    assert "collate_fn" not in side(loader(dataset(12))).note
    note = side(loader(dataset(12), collate_fn=np.stack)).note
    assert note.endswith("; its collate_fn, stack, is not compared")


def test_a_loaders_batch_sampler_gives_the_order(side, dataset, torch, twelve):
    batches = [[3, 1], [0]]
    read = side(torch.utils.data.DataLoader(dataset(12), batch_sampler=batches))
    assert read.order == [twelve[index].name for index in (3, 1, 0)]


def test_a_loader_of_a_stream_is_an_error(side, torch, raises_line):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([np.zeros((3, 4, 4))])

    with raises_line("--net", "side.py:f", "IterableDataset", "give its transforms"):
        side(torch.utils.data.DataLoader(Stream()))


def test_as_many_samples_as_pictures_are_needed(side, dataset, twelve, raises_line):
    with raises_line("--net", "side.py:f", "12 samples for 5 pictures", "raise --pictures"):
        side(dataset(12), twelve[:5])
    assert side(dataset(12)).read(twelve[3]).image.max() == 3


IMAGE, MASK = np.zeros((3, 4, 4)), np.ones((4, 4))


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (IMAGE, []),
        ((IMAGE, 2), []),
        ({"image": IMAGE, "label": 2}, []),
        ((IMAGE, 2, MASK, "a.png"), ["part 3 of a sample", "part 4 of a sample"]),
        ({"mask": MASK, "image": IMAGE, "label": 2, "labels": 3}, ["mask", "labels"]),
        ({"pixel_values": IMAGE, "x": IMAGE}, ["x"]),
    ],
)
def test_what_else_a_sample_has_is_named(value, left):
    assert list(sample_of(value).left) == left


def test_further_columns_are_named(side, twelve):
    from mindspore import dataset

    rows = [(IMAGE, 2, MASK)] * 12
    read = side(dataset.GeneratorDataset(rows, ["image", "label", "mask"], shuffle=False))
    assert read.read(twelve[0]).left == ["mask"]


def test_a_module_is_a_transform(side, torch, twelve):
    """nn.Sequential has the length and the index of a data set."""

    class Tensor(torch.nn.Module):
        def forward(self, image):
            return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    read = side(torch.nn.Sequential(Tensor(), torch.nn.Identity()))
    assert read.makes_samples
    assert read.read(twelve[0]).image.shape[0] == 3


@pytest.mark.parametrize(("count", "most"), [(9, 5), (20, 5), (3, 5), (9, 1)])
def test_pictures_of_a_folder_are_spread_evenly(tmp_path, count, most):
    Image.new("L", (8, 8)).save(tmp_path / "00.png")  # the first of its kind
    for number in range(1, count):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number:02}.png")
    pictures, total = pictures_in(str(tmp_path), most)
    numbers = [int(picture.name[:2]) for picture in pictures]
    assert (len(numbers), total) == (min(count, most), count)
    assert numbers[-1] == (count - 1 if most > 1 else 0)
    assert max(np.diff(numbers), default=0) <= count / max(most - 1, 1) + 1
