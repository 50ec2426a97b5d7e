"""Tiny data sets in the real on-disk formats."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def photograph(seed: int, width: int = 60, height: int = 40) -> Image.Image:
    """A smooth picture with some noise: what JPEG is made for."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((width, height), Image.BICUBIC)
    noisy = np.asarray(coarse, np.int16) + rng.integers(-6, 7, (height, width, 1))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def write_photographs(root: Path, train: int, val: int) -> Path:
    """3 classes with names of all kinds, so many photographs each, of different sizes."""
    for half, count in (("train", train), ("val", val)):
        for number, name in enumerate(("bee", "cat with a space", "éléphant")):
            place = root / half / name
            place.mkdir(parents=True)
            for k in range(count):
                picture = photograph(1000 * number + 10 * k + (half == "val"), 60 + 7 * k, 40 + 5 * number)
                (place / f"{k:02d} ü.JPEG").write_bytes(encoded(picture, quality=90))
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """3 classes, 7 training and 3 validation photographs each, of different sizes."""
    return write_photographs(tmp_path / "photographs", 7, 3)


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, 12 and 30 each: more than evaluation computes at a time. Not to be changed."""
    return write_photographs(tmp_path_factory.mktemp("data") / "photographs", 12, 30)


def write_cifar(root: Path, name: str, binary: bool, per_file: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Write a small CIFAR archive; returns the training images [N, 3, 32, 32] and labels that it holds."""
    classes = 10 if name == "cifar10" else 100
    ending = {"cifar10": ("batches-bin", "batches-py"), "cifar100": ("binary", "python")}[name][not binary]
    place = root / f"{'cifar-10' if name == 'cifar10' else 'cifar-100'}-{ending}"
    place.mkdir(parents=True)
    dot = ".bin" if binary else ""
    train = [f"data_batch_{k}{dot}" for k in range(1, 6)] if name == "cifar10" else [f"train{dot}"]
    test = f"test_batch{dot}" if name == "cifar10" else f"test{dot}"
    rng = np.random.default_rng(5)
    images, labels = [], []
    for file in (*train, test):
        pixels = rng.integers(0, 256, (per_file, 3072), dtype=np.uint8)
        fine, coarse = rng.integers(0, classes, per_file), rng.integers(0, 20, per_file)
        if binary:
            heads = [fine] if name == "cifar10" else [coarse, fine]
            np.concatenate([*(head[:, None].astype(np.uint8) for head in heads), pixels], 1).tofile(place / file)
        else:
            key = b"labels" if name == "cifar10" else b"fine_labels"
            (place / file).write_bytes(pickle.dumps({b"data": pixels, key: fine.tolist(), b"batch_label": b"x"}, 2))
        if file != test:
            images.append(pixels.reshape(-1, 3, 32, 32))
            labels.append(fine)
    names = [f"class_{k}" for k in range(100)]
    if name == "cifar100" and binary:
        (place / "fine_label_names.txt").write_text("\n".join(names) + "\n")
    if name == "cifar100" and not binary:
        (place / "meta").write_bytes(pickle.dumps({b"fine_label_names": [n.encode() for n in names]}, 2))
    return np.concatenate(images), np.concatenate(labels)


@pytest.fixture
def make_cifar():
    return write_cifar


@pytest.fixture
def make_photograph():
    return photograph


@pytest.fixture
def encode():
    return encoded
