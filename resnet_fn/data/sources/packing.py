"""Write an image folder as MindRecord shards; an interrupted packing can be continued.

Each shard is written in a temporary folder (a MindRecord file must keep its name), read back and compared, moved into
place and described by a small JSON beside it. `index.json` is written last.
"""

import io
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np

from resnet_fn.data.dataset import DataSet
from resnet_fn.data.preprocess import open_upright
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.records import FORMAT, INDEX
from resnet_fn.runtime.disk import replace_text, sha256, sha256_of_file

_CHUNK = 256  # samples in memory at a time
_SCHEMA = {"image": {"type": "bytes"}, "label": {"type": "int32"}, "index": {"type": "int32"}}


def shrink(data: bytes, short_side: int, quality: int) -> bytes:
    """Return the image as a JPEG of this shorter side (antialiased), or its own bytes if it is no larger."""
    from PIL import Image

    image = open_upright(data)
    short = min(image.size)
    if short <= short_side:
        return data
    size = tuple(max(1, round(side * short_side / short)) for side in image.size)
    buffer = io.BytesIO()
    image.resize(size, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


class Packer:
    """Writes the shards of one data set of checked image files into a folder, and keeps those of an interrupted run.

    `shards` are files per split; training images are shrunk to `short_side` pixels, as JPEGs of `quality` 1..95; 0
    keeps their own bytes, as evaluation images always keep theirs.
    """

    def __init__(
        self, dataset: DataSet, out: Path, shards: int, short_side: int = 0, quality: int = 90, threads: int = 1
    ) -> None:
        self._dataset, self._out, self._shards, self._threads = dataset, out, shards, threads
        self._short_side, self._quality = short_side, quality
        self._splits = {"train": cast(FileSplit, dataset.train), "val": cast(FileSplit, dataset.test)}
        self.samples = sum(len(split) for split in self._splits.values())
        self._check_plan()

    def write(self, advance: Callable[[int], object] = lambda samples: None) -> int:
        """Write missing shards, then the index; returns how many. `advance` gets the samples of each finished shard."""
        index: dict[str, Any] = {
            "format": FORMAT,
            "classes": list(self._dataset.classes),
            "mean": list(self._dataset.input.mean),
            "std": list(self._dataset.input.std),
            "short_side": self._short_side,
            "splits": {},
        }
        written = 0
        for name, split in self._splits.items():
            entries, shards = [], min(self._shards, len(split))
            for number, indices in enumerate(np.array_split(np.arange(len(split)), shards)):
                shard = f"{name}-{number:05d}-of-{shards:05d}.mindrecord"
                entry = self._finished(shard)
                if entry is None:
                    entry = self._write_shard(shard, split, indices, name == "train")
                    written += 1
                entries.append(entry)
                advance(len(indices))
            index["splits"][name] = entries
            np.save(self._out / f"{name}-labels.npy", split.labels)
            replace_text(self._out / f"{name}-names.json", json.dumps(split.names) + "\n")
        replace_text(self._out / INDEX, json.dumps(index, indent=1) + "\n")  # ASCII holds names of any bytes
        return written

    def _check_plan(self) -> None:
        files = (split.listing + split.labels.tobytes() + split.contents for split in self._splits.values())
        plan = {"files": sha256(b"".join(files)), "shards": self._shards}
        plan |= {"short_side": self._short_side, "quality": self._quality}
        path = self._out / "plan.json"
        self._out.mkdir(parents=True, exist_ok=True)
        if path.exists() and json.loads(path.read_text()) != plan:
            raise ValueError(f"out: {self._out} holds another packing (other files or settings); give another folder")
        replace_text(path, json.dumps(plan, indent=1) + "\n")

    def _finished(self, shard: str) -> dict[str, Any] | None:
        try:
            entry = json.loads((self._out / f"{shard}.json").read_text())
            sizes = {file: (self._out / file).stat().st_size for file in entry["files"]}
            if sizes != entry["files"]:
                return None
            # The contents may have changed since they were written.
            intact = all(sha256_of_file(self._out / file) == digest for file, digest in entry["sha256"].items())
        except (OSError, ValueError, KeyError):
            return None
        return entry if intact else None

    def _write_shard(self, shard: str, split: FileSplit, indices: np.ndarray, train: bool) -> dict[str, Any]:
        from mindspore.mindrecord import FileWriter

        folder = self._out / ".writing"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        writer = FileWriter(str(folder / shard), shard_num=1, overwrite=True)
        writer.add_schema(_SCHEMA, "image classification")
        checksums = []
        for start in range(0, len(indices), _CHUNK):
            part = indices[start : start + _CHUNK]
            images = list(self._encode(split, part, train))
            checksums += [zlib.crc32(image) for image in images]
            rows = zip(images, split.labels[part].tolist(), part.tolist(), strict=True)
            writer.write_raw_data([dict(zip(_SCHEMA, row, strict=True)) for row in rows])
        writer.commit()
        if _read_back(folder / shard) != list(zip(checksums, indices.tolist(), strict=True)):
            raise OSError(f"{folder / shard}: the records read back are not those written; check the disk and retry")
        files = sorted(os.listdir(folder))
        entry = {
            "name": shard,
            "samples": len(indices),
            "files": {file: (folder / file).stat().st_size for file in files},
            "sha256": {file: sha256_of_file(folder / file) for file in files},
        }
        for file in files:
            (folder / file).replace(self._out / file)
        folder.rmdir()
        replace_text(self._out / f"{shard}.json", json.dumps(entry, indent=1) + "\n")
        return entry

    def _encode(self, split: FileSplit, indices: np.ndarray, train: bool) -> Iterator[bytes]:
        def encode(index: int) -> bytes:
            data = split.read(index)
            return shrink(data, self._short_side, self._quality) if train and self._short_side else data

        with ThreadPoolExecutor(self._threads) as pool:
            yield from pool.map(encode, indices)


def _read_back(path: Path) -> list[tuple[int, int]]:
    from mindspore.dataset import MindDataset

    rows = MindDataset(str(path), ["image", "index"], shuffle=False, num_parallel_workers=1)
    iterator = rows.create_dict_iterator(num_epochs=1, output_numpy=True)
    return [(zlib.crc32(row["image"].tobytes()), int(row["index"])) for row in iterator]
