"""This module reads data sets that `python -m resnet_fn.pack` wrote. The folder holds these files:

index.json                          format, classes, mean, std, short_side, each shard's name, samples, sizes, SHA-256
train-labels.npy, val-labels.npy    labels, int32 [N]
train-names.json, val-names.json    names of the packed image files, N strings
train-00000-of-00008.mindrecord, …  shards (MindRecord files), each with a .db file and a .json file
"""

import dataclasses
import io
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from resnet_fn.config.reading import read_json, read_regular, reading
from resnet_fn.config.wording import first_line
from resnet_fn.data.dataset import BadSampleError, DataSet
from resnet_fn.data.sources.decoder import Stream
from resnet_fn.data.sources.files import EncodedSplit, color_spec, show_contents

INDEX = "index.json"
FORMAT = 2
_FIX = "pack the set again"
LABELS = "{}-labels.npy"  # of the split "train" or "val"
NAMES = "{}-names.json"


@dataclasses.dataclass(frozen=True)
class RecordSplit(EncodedSplit):
    """Reads a split from shards.

    The columns of a shard are image (a file's bytes), label and index (sample number).
    """

    files: tuple[str, ...]  # paths of the shards, in the order of the samples
    labels: np.ndarray  # int32 [N]
    names: tuple[str, ...]  # names of the image files that were packed
    contents: bytes  # SHA-256 of each file of the shards, one a line
    threads: int = 1  # number of decoding threads
    listing: ClassVar[bytes] = b""  # empty, because `contents` identifies the data set

    def __len__(self) -> int:
        return len(self.labels)

    def stream(self, order: np.ndarray) -> Stream:
        """Yield (sample number, file's bytes) for each sample number in `order`."""
        # MindDataset takes at most as many numbers as it has samples. Opening a set of 400,000
        # samples takes 50 ms.
        count = min(len(self), max(1024, len(self) // 64))
        for start in range(0, len(order), count):
            yield from self._read(order[start : start + count])

    def undecodable(self, index: int) -> BadSampleError:
        """Return the error for a sample that cannot be decoded."""
        return BadSampleError(
            f"data: sample {index} ({self.names[index]}) of the packed set cannot be decoded; "
            "pack the set again, then resume"
        )

    def _read(self, order: np.ndarray) -> Stream:
        from mindspore import dataset as engine

        rows = None
        numbers = order.tolist()
        index = numbers[0]
        try:
            sampler = engine.SubsetSampler(numbers)
            records = engine.MindDataset(
                list(self.files), ["image", "index"], self.threads, sampler=sampler
            )
            rows = records.create_dict_iterator(num_epochs=1, output_numpy=True)
            for index in numbers:  # noqa: B007 (the error names it)
                row = next(rows)
                yield int(row["index"]), row["image"].tobytes()  # `Decoder` compares the number
        except (RuntimeError, ValueError) as error:
            lines = str(error).splitlines()  # one line of the error has the cause
            cause = next((line for line in lines if line.startswith("[ERROR] ")), first_line(error))
            # MindDataset reads ahead, so a later sample may be the bad one.
            raise BadSampleError(
                f"data: sample {index} ({self.names[index]}) or a later one cannot be read "
                f"({cause.removeprefix('[ERROR] ')}); check the packed files, then resume"
            ) from error
        finally:
            if rows is not None:
                rows.stop()


def load_records(data_dir: str) -> DataSet:
    """Load a data set that `pack` wrote.

    Raises ValueError if a file is missing, has the wrong size, or is not of `pack`.
    """
    root = Path(data_dir)
    try:
        with reading(root / INDEX, _FIX):
            index = read_json(root / INDEX)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"data_dir: {data_dir!r} must contain {INDEX}, but it contains "
            f"{show_contents(root)}; "
            f"pack an image folder with python -m resnet_fn.pack SOURCE {data_dir}"
        ) from None
    errors = (KeyError, TypeError, AttributeError, ValueError)
    number = index.get("format") if isinstance(index, dict) else None
    if number not in (None, FORMAT):
        raise ValueError(f"{root / INDEX}: format must be {FORMAT}, but it is {number}; {_FIX}")
    with reading(root / INDEX, _FIX, "is not an index of resnet_fn.pack", errors):
        if number is None:
            raise KeyError("format")
        spec = color_spec("mindrecord", index["classes"], index["mean"], index["std"])
        splits = {name: _shards(index, name) for name in ("train", "val")}
        spec.check()
    train, test = (_open_split(root, name, shards) for name, shards in splits.items())
    return DataSet(train, test, spec)


def _shards(index: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the descriptions of a split's shards. Raises an error if one is wrong."""
    shards = list(index["splits"][name])
    for shard in shards:
        names = [shard["name"], *shard["files"]]
        are_names = all(isinstance(file, str) and Path(file).name == file for file in names)
        counts = [shard["samples"], *shard["files"].values()]
        are_counts = all(type(count) is int and count >= 0 for count in counts)
        if not are_names or not are_counts or not all(map(str.isalnum, shard["sha256"].values())):
            raise ValueError(f"wrong shards of {name}")
    return shards


def _open_split(root: Path, name: str, shards: list[dict[str, Any]]) -> RecordSplit:
    for shard in shards:
        for file, size in shard["files"].items():
            path = root / file
            if not path.is_file() or path.stat().st_size != size:
                problem = "has the wrong size" if path.is_file() else "is missing"
                raise ValueError(
                    f"{path}: {problem}; run python -m resnet_fn.pack again to write the file"
                )
    samples = sum(shard["samples"] for shard in shards)
    labels = _read_labels(root, name, samples)
    names = _read_names(root, name)
    if {len(labels), len(names)} != {samples}:
        raise ValueError(
            f"{root}: {name} has {len(labels)} labels and {len(names)} names, but the shards hold "
            f"{samples} samples; pack the set again"
        )
    files = tuple(str(root / shard["name"]) for shard in shards)
    digests = "\n".join(digest for shard in shards for digest in shard["sha256"].values())
    return RecordSplit(files, labels, tuple(names), digests.encode())


def _read_labels(root: Path, name: str, samples: int) -> np.ndarray:
    path = root / LABELS.format(name)
    with reading(path, _FIX, errors=(FileNotFoundError, ValueError, MemoryError, EOFError)):
        # A header of at most 64 kB, and 8 bytes for a label.
        data = io.BytesIO(read_regular(path, (1 << 16) + 8 * samples))
        # `np.load` would also take a zip file, with arrays of any size.
        labels: np.ndarray = np.lib.format.read_array(data, allow_pickle=False)
        if labels.dtype.kind not in "iu" or labels.ndim != 1:
            raise ValueError("not labels")
        return labels


def _read_names(root: Path, name: str) -> list[Any]:
    path = root / NAMES.format(name)
    with reading(path, _FIX, errors=(FileNotFoundError, ValueError)):
        names = read_json(path)
        if not isinstance(names, list) or not all(isinstance(item, str) for item in names):
            raise ValueError("not a list of names")
        return names
