"""This module reads packed image folders: MindRecord shards that `python -m resnet_fn.pack` wrote.

OUT/index.json              format, classes, moments, and of each shard: name, samples, size, sha256
OUT/train-labels.npy        int32 [N]; OUT/val-labels.npy
OUT/train-names.json        the files' names [N]; OUT/val-names.json
OUT/train-00000-of-00008.mindrecord and its .db, …
"""

import dataclasses
import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from resnet_fn.config.hints import first_line
from resnet_fn.data.dataset import BadSampleError, DataSet
from resnet_fn.data.input_spec import InputSpec
from resnet_fn.data.sources.files import color_spec, decode_batches

INDEX, FORMAT = "index.json", 2


@dataclasses.dataclass(frozen=True)
class RecordSplit:
    """A split in MindRecord shards; their columns are image (a file's bytes), label, index (number in the split)."""

    files: tuple[str, ...]  # the shards, in the order of the samples
    labels: np.ndarray  # int32 [N]
    threads: int  # number of decoding threads
    names: tuple[str, ...]  # names of the image files that were packed
    contents: bytes  # sha256 of each shard's files, a line each
    listing: ClassVar[bytes] = b""  # empty, unlike in `FileSplit`: `contents` identifies the set

    def __len__(self) -> int:
        return len(self.labels)

    def stream(self, order: np.ndarray) -> Generator[tuple[int, bytes], None, None]:
        """Yield (number, file's bytes) of each sample in `order`; a BadSampleError if a shard cannot be read."""
        # MindDataset takes at most as many numbers as it has samples; opening one of 400,000 samples takes 50 ms.
        count = min(len(self), max(1024, len(self) // 64))
        for start in range(0, len(order), count):
            part = order[start : start + count]
            with closing(self._read(part)) as images:
                yield from zip(part.tolist(), images, strict=True)

    def undecodable(self, index: int) -> BadSampleError:
        """Return the error for a sample that cannot be decoded."""
        name = f"sample {index} ({self.names[index]})"
        return BadSampleError(f"data: {name} of the packed set cannot be decoded; pack the set again, then resume")

    def eval_images(self, batches: Iterable[np.ndarray], spec: InputSpec) -> Iterator[np.ndarray]:
        """Yield images as `Samples.eval_images` does, with torchvision's evaluation preprocessing."""
        return decode_batches(self.stream, self.undecodable, batches, spec, self.threads)

    def _read(self, order: np.ndarray) -> Generator[bytes, None, None]:
        from mindspore import dataset as engine

        rows, numbers = None, order.tolist()
        try:
            for index in numbers:
                try:
                    if rows is None:
                        files, sampler = list(self.files), engine.SubsetSampler(numbers)
                        records = engine.MindDataset(files, ["image", "index"], self.threads, sampler=sampler)
                        rows = records.create_dict_iterator(num_epochs=1, output_numpy=True)
                    row = next(rows)
                except (RuntimeError, ValueError) as error:
                    lines = str(error).splitlines()  # of the pipeline's report one has the cause
                    cause = next((line for line in lines if line.startswith("[ERROR] ")), first_line(error))
                    # MindDataset reads ahead: it may already fail at a sample that it could give.
                    name = f"sample {index} ({self.names[index]}), or one soon after it,"
                    wrong = f"{name} cannot be read ({cause.removeprefix('[ERROR] ')})"
                    raise BadSampleError(f"data: {wrong}; check the packed files, then resume") from error
                if int(row["index"]) != index:
                    raise RuntimeError(f"MindDataset gave sample {int(row['index'])} instead of {index}")
                yield row["image"].tobytes()
        finally:
            if rows is not None:
                rows.stop()


def load_records(data_dir: str, threads: int) -> DataSet:
    """Open a data set that `pack` wrote; a ValueError names the file that is missing or damaged."""
    root = Path(data_dir)
    try:
        index = json.loads((root / INDEX).read_text())
    except (FileNotFoundError, NotADirectoryError):
        there = ", ".join(sorted(path.name for path in root.iterdir())[:5] if root.is_dir() else []) or "nothing"
        fix = f"pack an image folder with: python -m resnet_fn.pack SOURCE {data_dir}"
        raise ValueError(f"data_dir: looked for {INDEX} in {data_dir!r}, found {there}; {fix}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{root / INDEX}: cannot be read ({error}); pack the set again") from None
    try:
        if index["format"] != FORMAT:
            raise ValueError(f"{root / INDEX}: has format {index['format']}, not {FORMAT}; pack the set again")
        train, test = (_open_split(root, name, index, threads) for name in ("train", "val"))
        spec = color_spec("mindrecord", index["classes"], index["mean"], index["std"])
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"{root / INDEX}: is not what resnet_fn.pack writes; pack the set again") from None
    return DataSet(train, test, spec)


def _open_split(root: Path, name: str, index: dict[str, Any], threads: int) -> RecordSplit:
    shards = index["splits"][name]
    for shard in shards:
        for file, size in shard["files"].items():
            path = root / file
            if not path.is_file() or path.stat().st_size != size:
                state = "is cut or was changed" if path.is_file() else "is missing"
                raise ValueError(f"{path}: {state}; run python -m resnet_fn.pack again, it writes only what is missing")
    try:
        labels, names = np.load(root / f"{name}-labels.npy"), json.loads((root / f"{name}-names.json").read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{root}: {name}'s labels or names cannot be read ({error}); pack the set again") from None
    samples = sum(shard["samples"] for shard in shards)
    if len(labels) != samples or len(names) != samples:
        wrong = f"{len(labels)} labels and {len(names)} names for {samples} samples in the shards"
        raise ValueError(f"{root}: has {wrong} of {name}; pack the set again")
    files = tuple(str(root / shard["name"]) for shard in shards)
    digests = "\n".join(digest for shard in shards for digest in shard["sha256"].values())
    return RecordSplit(files, labels, threads, tuple(names), digests.encode())
