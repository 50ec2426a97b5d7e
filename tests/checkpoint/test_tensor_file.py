"""safetensors files: bytes, hashes, headers of strangers."""

import json
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.checkpoint.tensor_file import read_metadata, read_safetensors, write_safetensors


def arrays():
    rng = np.random.default_rng(0)
    return {
        "weight": rng.normal(size=(4, 3)).astype(np.float32),
        "scalar": np.float64(65536).reshape(()),
        "half": rng.normal(size=5).astype(np.float16),
        "empty": np.zeros((0, 3), np.float32),
        "transposed": np.arange(6, dtype=np.int16).reshape(2, 3).T,
        "flags": np.array([True, False, True]),
        "counts": np.arange(4, dtype=np.int32),
    }


def file_of(header, body=b"", length=None):
    text = json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


def entry(shape, offsets, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_what_is_read_is_what_was_written():
    write_safetensors("a", arrays(), {"note": "ü"})
    data = Path("a").read_bytes()
    read = read_safetensors(data)
    assert list(read) == list(arrays())
    for name, array in arrays().items():
        assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape), name
        assert read[name].tobytes() == array.tobytes(), name
    start = 8 + int.from_bytes(data[:8], "little")
    assert start % 8 == 0, "so that arrays may be mapped into memory"


def test_metadata_are_texts_by_name():
    for metadata in ({"note": "ü", "classes": '["bee"]'}, {}):
        write_safetensors("a", arrays(), metadata)
        assert read_metadata("a") == metadata


@pytest.mark.parametrize("data", [b"", file_of([])])
def test_metadata_of_a_damaged_header_is_an_error(data):
    Path("a").write_bytes(data)
    with pytest.raises(ValueError, match="a has no intact safetensors header; copy the file again"):
        read_metadata("a")


def test_bfloat16_becomes_float32():
    """A bfloat16 is the upper half of a float32."""
    values = np.array([1, -2.5, 3.140625, 0], np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    read = read_safetensors(file_of({"a": entry([2, 2], [0, 8], "BF16")}, halves.tobytes()))
    assert read["a"].dtype == np.float32
    assert read["a"].tolist() == [[1, -2.5], [3.140625, 0]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            file_of({"a": entry([2], [0, 8]), "b": entry([2], [4, 12])}, bytes(12)),
            "invalid offset for tensor `b`",
        ),
        (
            file_of({"a": entry([1], [0, 8], "C64")}, bytes(8)),
            "a: dtype C64 is unknown; known dtypes are F64, F32",
        ),
    ],
)
def test_a_header_that_lies_is_refused(data, message):
    with pytest.raises(ValueError, match=message):
        read_safetensors(data)
