"""Files of `torch.save`, read without PyTorch: the same bits, and no code of the file runs."""

import argparse
import collections
import contextlib
import functools
import os
import pathlib
import pickle
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

from resnet_fn.weights.files import read_arrays
from resnet_fn.weights.torch_file import TorchFileError, TorchTensor, Unread, read_torch_file

torch = pytest.importorskip("torch", reason="torch.save writes the files")
FORMATS = [{}, {"pickle_protocol": 4}, {"_use_new_zipfile_serialization": False}]


def tensors():
    """Tensors of every type, and views of a part of a storage, in another order than the
    storage.
    """
    values = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    types = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64)
    types += (torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    views = {
        "transposed": values.t(),
        "part": values[1:3, ::2],
        "expanded": values[:, :1].expand(4, 5),
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3.5),
        "parameter": torch.nn.Parameter(values),
    }
    return {**{str(kind): (values * 10).to(kind) for kind in types}, **views}


def reread(contents, **options):
    """What is read of contents that torch.save wrote."""
    torch.save(contents, "a.pth", **options)
    return read_torch_file(pathlib.Path("a.pth"))


@pytest.mark.parametrize("options", FORMATS, ids=["zip", "protocol 4", "before 1.6"])
def test_each_type_and_view_keeps_its_bits(options):
    read = reread(tensors(), **options)
    assert list(read) == list(tensors())
    for name, tensor in tensors().items():
        expected = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().numpy()
        array = read[name].read()
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape), name
        assert array.tobytes() == np.ascontiguousarray(expected).tobytes(), name


class Config(dict):
    """A kind of dict, as OmegaConf, addict and Lightning have them."""


def test_other_objects_in_a_file_do_no_harm():
    """Settings, schedules, metrics in NumPy's types: nothing of them is imported or built."""
    optimizer = torch.optim.SGD([torch.zeros(3, requires_grad=True)], lr=0.1)
    others = {
        "args": argparse.Namespace(path=pathlib.Path("x"), function=functools.partial(print, 3)),
        "config": Config(a=[1, 2], b=Config()),
        "best": np.float64(71.5),
        "history": collections.defaultdict(list, loss=[np.ones(3)]),
        "queue": collections.deque([1]),
        "schedule": torch.optim.lr_scheduler.StepLR(optimizer, 3),
        "class": Config,
    }
    read = reread({"state_dict": tensors(), **others})
    arrays = [name for name, item in read.items() if isinstance(item, TorchTensor)]
    assert arrays == [f"state_dict/{name}" for name in tensors()]
    assert all(isinstance(read[name], Unread) for name in read if name not in arrays)


@pytest.mark.parametrize("options", FORMATS, ids=["zip", "protocol 4", "before 1.6"])
@pytest.mark.parametrize("name", ["mkdir", "exec", "loads"])
def test_no_function_that_a_file_names_runs(name, options, tmp_path):
    place = str(tmp_path / "ran")
    code = f"import os; os.mkdir({place!r})"
    calls = {
        "mkdir": Runs(os.mkdir, place),
        "exec": Runs(exec, code),
        "loads": Runs(pickle.loads, pickle.dumps(Runs(exec, code))),
    }
    read = reread({"a": calls[name], "w": torch.ones(2)}, **options)
    assert isinstance(read["a"], Unread)
    assert read["w"].read().tolist() == [1, 1]
    assert not os.path.exists(place)


class Runs:
    """An object that PyTorch would build by calling a function."""

    def __init__(self, function, argument):
        self.call = (function, (argument,))

    def __reduce__(self):
        return self.call


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_whole_saved_net_gives_its_state_dict():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.BatchNorm2d(4))
    whole = reread({"model": torch.nn.DataParallel(net)})
    torch.jit.script(net).save("b.pt")
    scripted = read_torch_file(pathlib.Path("b.pt"))
    for read, prefix in ((whole, "model/module."), (scripted, "")):
        for name, tensor in net.state_dict().items():
            if name != "1.num_batches_tracked" or read is whole:
                assert read[f"{prefix}{name}"].read().tobytes() == tensor.numpy().tobytes(), name


def test_a_flipped_bit_is_an_error():
    tensor = reread({"a": torch.ones(5000)})["a"]
    with open("a.pth", "r+b") as file:
        file.seek(10_000)
        file.write(b"\1")
    with pytest.raises(zipfile.BadZipFile, match="CRC"):
        tensor.read()


def test_a_cut_older_file_is_an_error():
    path = pathlib.Path("a.pth")
    torch.save({"a": torch.ones(50)}, path, _use_new_zipfile_serialization=False)
    for kept in (path.stat().st_size - 4, 300, 40):
        os.truncate(path, kept)
        with pytest.raises(TorchFileError, match="is no intact PyTorch file"):
            read_torch_file(path)


OUTSIDE = [(0, (9,), (1,)), (2, (2, 2), (1, 1)), (3, (3,), (-1,))]


@pytest.mark.parametrize(("offset", "shape", "strides"), OUTSIDE)
def test_a_tensor_beyond_its_storage_is_an_error(offset, shape, strides):
    class Outside:
        def __reduce__(self):
            storage = torch.ones(4)._typed_storage()
            hooks = collections.OrderedDict()
            return torch._utils._rebuild_tensor_v2, (storage, offset, shape, strides, False, hooks)

    with pytest.raises(ValueError, match="lies outside of its storage"):
        reread({"a": Outside()})["a"].read()


def test_shared_objects_are_read_once():
    shared = {"w": torch.ones(2)}
    for _ in range(40):
        shared = {"a": shared, "b": shared}  # 2⁴⁰ ways to `w`
    assert list(reread(shared)) == [f"{'a/' * 40}w"]


def test_a_small_file_cannot_claim_much_memory():
    with pytest.raises(ValueError, match="repeats 1 number"):
        reread({"a": torch.ones(1).expand(100_000, 100_000)})["a"].read()
    torch.save({"a": torch.ones(2)}, "b.pth")
    memo = pickle.PROTO + b"\x02" + pickle.EMPTY_DICT + pickle.LONG_BINPUT + b"\0\0\0\x80."
    for name, content, message in (
        ("data.pkl", memo, ""),
        ("byteorder", b"little" * 10**7, r"is compressed and would unpack to 60,\d\d\d,\d\d\d"),
        ("data/0", bytes(10**8), r"is compressed and would unpack to 100,\d\d\d,\d\d\d"),
    ):
        with zipfile.ZipFile("b.pth") as old, zipfile.ZipFile("c.pth", "w") as new:
            for entry in old.infolist():
                changed = entry.filename == f"b/{name}"
                packed = zipfile.ZIP_DEFLATED * (changed and name != "data.pkl")
                new.writestr(entry.filename, content if changed else old.read(entry), packed)
        tracemalloc.start()
        with pytest.raises(TorchFileError, match=message) if message else contextlib.nullcontext():
            read_torch_file(pathlib.Path("c.pth"))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000, name
        tracemalloc.stop()


def test_a_shared_storage_is_read_once():
    """Of 500 views, and the zip archive's directory is read once."""
    values = torch.arange(1_000_000.0)
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        read = reread({str(row): values[row:][:9] for row in range(500)}, **options)
        start = time.process_time()
        assert [array.read()[0] for array in read.values()] == list(range(500))
        assert time.process_time() - start < 0.5


def test_too_little_memory_is_no_damage():
    torch.save({"a": torch.ones(1)}, "a.pth", _use_new_zipfile_serialization=False)
    with open("a.pth", "r+b") as file:
        file.seek(-12, os.SEEK_END)
        file.write((10**12).to_bytes(8, "little"))
        file.truncate(file.tell() + 4 * 10**12)  # 4 TB, of which nothing is on the disk
    with pytest.raises(MemoryError):
        read_arrays("a.pth")
