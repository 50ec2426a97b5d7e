"""This module writes the images of a folder to MindRecord files (shards), and reads each shard back
to check it.
"""

import io
import os
import shutil
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np

from resnet_fn.config.reading import read_json, reading
from resnet_fn.data.dataset import DataSet
from resnet_fn.data.preprocess import open_upright
from resnet_fn.data.sources.contents import BAD_FILES
from resnet_fn.data.sources.files import FileSplit
from resnet_fn.data.sources.records import FORMAT, INDEX, LABELS, NAMES
from resnet_fn.data.sources.scan import write_bad_files
from resnet_fn.runtime.disk import replace_json, sha256, sha256_of_file

_CHUNK = 256  # samples in memory at a time
_SCHEMA = {"image": {"type": "bytes"}, "label": {"type": "int32"}, "index": {"type": "int32"}}


_PLAN = "plan.json"
_WRITING = ".writing"
# Files that `pack` writes beside the shards and the plan.
_FILES = (
    *(pattern.format(name) for pattern in (LABELS, NAMES) for name in ("train", "val")),
    INDEX,
    BAD_FILES,
    _WRITING,
)


def shrink(data: bytes, short_side: int, quality: int) -> bytes:
    """Shrink an image to a shorter side of `short_side` pixels, as JPEG.

    Images that are not larger stay unchanged.
    """
    from PIL import Image

    image = open_upright(data)
    short = min(image.size)
    if short <= short_side:
        return data
    size = tuple(max(1, round(side * short_side / short)) for side in image.size)
    buffer = io.BytesIO()
    image.resize(size, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def pack(
    dataset: DataSet,
    out: Path,
    shards: int,
    short_side: int = 0,
    quality: int = 90,
    advance: Callable[[int], object] = lambda samples: None,
) -> int:
    """Write the shards that `out` lacks, and then index.json. Return the number of written shards.

    `check_files` must have checked the files of `dataset`. Each split gets at most `shards` shards.
    If `short_side` is above 0, training images are shrunk. `advance` is called with the number of
    samples of each finished shard.
    """
    splits = {"train": cast(FileSplit, dataset.train), "val": cast(FileSplit, dataset.test)}
    files = (split.listing + split.labels.tobytes() + split.contents for split in splits.values())
    plan = {
        "files": sha256(b"".join(files)),
        "shards": shards,
        "short_side": short_side,
        "quality": quality,
    }
    path = out / _PLAN
    out.mkdir(parents=True, exist_ok=True)
    if path.exists():
        with reading(path, "give another folder"):
            earlier = read_json(path)
        if earlier != plan:
            raise ValueError(
                f"out: {out} was packed from other files or with other settings; "
                "give another folder"
            )
    others = [name for name in _FILES if (out / name).exists()]
    if others and not path.exists():
        raise ValueError(f"out: {out}/{others[0]} was not written by pack; give another folder")
    replace_json(path, plan)
    write_bad_files(out, dataset)
    index: dict[str, Any] = {
        "format": FORMAT,
        "classes": list(dataset.classes),
        "mean": list(dataset.input.mean),
        "std": list(dataset.input.std),
        "short_side": short_side,
        "splits": {},
    }
    written = 0
    for name, split in splits.items():
        entries = []
        count = min(shards, len(split))
        for number, indices in enumerate(np.array_split(np.arange(len(split)), count)):
            shard = f"{name}-{number:05d}-of-{count:05d}.mindrecord"
            entry = _finished(out, shard)
            if entry is None:
                side = short_side if name == "train" else 0
                entry = _write_shard(out, shard, split, indices, side, quality)
                written += 1
            entries.append(entry)
            advance(len(indices))
        index["splits"][name] = entries
        np.save(out / LABELS.format(name), split.labels)
        replace_json(out / NAMES.format(name), list(split.names), indent=None)
    replace_json(out / INDEX, index)
    return written


def _finished(out: Path, shard: str) -> dict[str, Any] | None:
    """Return the JSON description of a shard, or None if a file of the shard is missing or
    damaged.
    """
    try:
        entry: dict[str, Any] = read_json(out / f"{shard}.json")
        intact = all(
            sha256_of_file(out / file) == digest for file, digest in entry["sha256"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return entry if intact else None


def _write_shard(
    out: Path,
    shard: str,
    split: FileSplit,
    indices: np.ndarray,
    short_side: int,
    quality: int,
) -> dict[str, Any]:
    from mindspore.mindrecord import FileWriter

    def encode(index: int) -> bytes:
        data = split.read(index)
        return shrink(data, short_side, quality) if short_side else data

    # files move from here under the same name, because MindRecord files cannot be renamed
    folder = out / _WRITING
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    writer = FileWriter(str(folder / shard), shard_num=1, overwrite=True)
    writer.add_schema(_SCHEMA, "image classification")
    checksums = []
    with ThreadPoolExecutor(split.threads) as pool:
        for start in range(0, len(indices), _CHUNK):
            part = indices[start : start + _CHUNK]
            images = list(pool.map(encode, part))
            checksums += [zlib.crc32(image) for image in images]
            rows = zip(images, split.labels[part].tolist(), part.tolist(), strict=True)
            writer.write_raw_data([dict(zip(_SCHEMA, row, strict=True)) for row in rows])
    writer.commit()
    if _read_back(folder / shard) != list(zip(checksums, indices.tolist(), strict=True)):
        raise OSError(
            f"{folder / shard}: reading returned other records than were written; check the disk "
            "and retry"
        )
    files = sorted(os.listdir(folder))
    entry = {
        "name": shard,
        "samples": len(indices),
        "files": {file: (folder / file).stat().st_size for file in files},
        "sha256": {file: sha256_of_file(folder / file) for file in files},
    }
    for file in files:
        (folder / file).replace(out / file)
    folder.rmdir()
    replace_json(out / f"{shard}.json", entry)
    return entry


def _read_back(path: Path) -> list[tuple[int, int]]:
    from mindspore.dataset import MindDataset

    rows = MindDataset(str(path), ["image", "index"], shuffle=False, num_parallel_workers=1)
    iterator = rows.create_dict_iterator(num_epochs=1, output_numpy=True)
    return [(zlib.crc32(row["image"].tobytes()), int(row["index"])) for row in iterator]
