"""`published_file` finds weights by the names that torchvision, timm and MindCV give them.

Nothing is downloaded. The addresses are from the source code of torchvision 0.29.1, timm 1.0.31 and
MindCV 0.3.0.
"""

import os
import shlex
from pathlib import Path
from typing import NamedTuple

from resnet_fn.config.hints import suggest_name
from resnet_fn.runtime.disk import sha256_of_file

_FEW = 10_000  # with fewer images, a net that starts from random numbers learns badly
# Where each project publishes its files: the beginning of an address, and lines NAME FILE. The
# files have weights that were trained on ImageNet. The last eight digits in the name of a file are
# the first of its SHA-256.
_PROJECTS = {
    "torchvision": (
        "https://download.pytorch.org/models/",
        """
        resnet18 resnet18-f37072fd.pth
        resnet34 resnet34-b627a593.pth
        resnet50 resnet50-11ad3fa6.pth
        resnet101 resnet101-cd907fc2.pth
        resnet152 resnet152-f82ba261.pth
        resnext50_32x4d resnext50_32x4d-1a0047aa.pth
        wide_resnet50_2 wide_resnet50_2-9ba9bcbe.pth
        """,
    ),
    "timm": (
        "https://github.com/huggingface/pytorch-image-models/releases/download/v0.1-",
        # Of each net, timm's default comes first.
        """
        resnet18.a1_in1k rsb-weights/resnet18_a1_0-d63eafa0.pth
        resnet18.a2_in1k rsb-weights/resnet18_a2_0-b61bd467.pth
        resnet18.a3_in1k rsb-weights/resnet18_a3_0-40c531c8.pth
        resnet34.a1_in1k rsb-weights/resnet34_a1_0-46f8f793.pth
        resnet34.a2_in1k rsb-weights/resnet34_a2_0-82d47d71.pth
        resnet34.a3_in1k rsb-weights/resnet34_a3_0-a20cabb6.pth
        resnet34.bt_in1k weights/resnet34-43635321.pth
        resnet50.a1_in1k rsb-weights/resnet50_a1_0-14fe96d1.pth
        resnet50.a1h_in1k rsb-weights/resnet50_a1h2_176-001a1197.pth
        resnet50.a2_in1k rsb-weights/resnet50_a2_0-a2746f79.pth
        resnet50.a3_in1k rsb-weights/resnet50_a3_0-59cae1ef.pth
        resnet50.b1k_in1k rsb-weights/resnet50_b1k-532a802a.pth
        resnet50.b2k_in1k rsb-weights/resnet50_b2k-1ba180c1.pth
        resnet50.c1_in1k rsb-weights/resnet50_c1-5ba5e060.pth
        resnet50.c2_in1k rsb-weights/resnet50_c2-d01e05b2.pth
        resnet50.d_in1k rsb-weights/resnet50_d-f39db8af.pth
        resnet50.ram_in1k weights/resnet50_ram-a26f946b.pth
        resnet50.am_in1k weights/resnet50_am-6c502b37.pth
        resnet50.ra_in1k weights/resnet50_ra-85ebb6e5.pth
        resnet50.bt_in1k weights/rw_resnet50-86acaeed.pth
        resnet101.a1h_in1k rsb-weights/resnet101_a1h-36d3f2aa.pth
        resnet101.a1_in1k rsb-weights/resnet101_a1_0-cdcb52a9.pth
        resnet101.a2_in1k rsb-weights/resnet101_a2_0-6edb36c7.pth
        resnet101.a3_in1k rsb-weights/resnet101_a3_0-1db14157.pth
        resnet152.a1h_in1k rsb-weights/resnet152_a1h-dc400468.pth
        resnet152.a1_in1k rsb-weights/resnet152_a1_0-2eee8a7a.pth
        resnet152.a2_in1k rsb-weights/resnet152_a2_0-b4c6978f.pth
        resnet152.a3_in1k rsb-weights/resnet152_a3_0-134d4688.pth
        resnext50_32x4d.a1h_in1k rsb-weights/resnext50_32x4d_a1h-0146ab0a.pth
        resnext50_32x4d.a1_in1k rsb-weights/resnext50_32x4d_a1_0-b5a91a1d.pth
        resnext50_32x4d.a2_in1k rsb-weights/resnext50_32x4d_a2_0-efc76add.pth
        resnext50_32x4d.a3_in1k rsb-weights/resnext50_32x4d_a3_0-3e450271.pth
        resnext50_32x4d.ra_in1k weights/resnext50_32x4d_ra-d733960d.pth
        wide_resnet50_2.racm_in1k weights/wide_resnet50_racm-8234f177.pth
        seresnet50.a1_in1k rsb-weights/seresnet50_a1_0-ffa00869.pth
        seresnet50.a2_in1k rsb-weights/seresnet50_a2_0-850de0d9.pth
        seresnet50.a3_in1k rsb-weights/seresnet50_a3_0-317ecd56.pth
        seresnet50.ra2_in1k weights/seresnet50_ra_224-8efdb4bb.pth
        resnet18d.ra2_in1k weights/resnet18d_ra2-48a79e06.pth
        resnet34d.ra2_in1k weights/resnet34d_ra2-f8dcfcaf.pth
        resnet50d.ra2_in1k weights/resnet50d_ra2-464e36ba.pth
        resnet50d.a1_in1k rsb-weights/resnet50d_a1_0-e20cff14.pth
        resnet50d.a2_in1k rsb-weights/resnet50d_a2_0-a3adc64d.pth
        resnet50d.a3_in1k rsb-weights/resnet50d_a3_0-403fdfad.pth
        resnet101d.ra2_in1k weights/resnet101d_ra2-2803ffab.pth
        resnet152d.ra2_in1k weights/resnet152d_ra2-5cac0439.pth
        """,
    ),
    "mindcv": (
        "https://download.mindspore.cn/toolkits/mindcv/",
        """
        resnet18 resnet/resnet18-1e65cd21.ckpt
        resnet34 resnet/resnet34-f297d27e.ckpt
        resnet50 resnet/resnet50-e0733ab8.ckpt
        resnet101 resnet/resnet101-689c5e77.ckpt
        resnet152 resnet/resnet152-beb689d8.ckpt
        resnext50_32x4d resnext/resnext50_32x4d-af8aba16.ckpt
        """,
    ),
}


class Published(NamedTuple):
    """A weight file that a project publishes."""

    address: str
    digits: str  # the first eight hexadecimal digits of the file's SHA-256

    @property
    def path(self) -> Path:
        """Where the project's own code keeps the file after a download."""
        name = self.address.rpartition("/")[2]
        if name.endswith(".ckpt"):
            return Path("~/.mindspore/models", name).expanduser()
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        home = os.environ.get("TORCH_HOME") or f"{cache}/torch"
        return Path(home, "hub", "checkpoints", name).expanduser()


def _published() -> dict[str, Published]:
    files = {}
    for project, (start, lines) in _PROJECTS.items():
        for name, file in (line.split() for line in lines.split("\n") if line.strip()):
            published = Published(f"{start}{file}", file.rpartition("-")[2].partition(".")[0])
            files[f"{project}:{name}"] = published
            net = name.partition(".")[0]
            files.setdefault(f"{project}:{net}", published)  # timm's default for this net
    return files


PUBLISHED = _published()  # by name, such as "timm:resnet50.a1_in1k"


def is_published_name(name: str) -> bool:
    """Return whether `name` has the form PROJECT:NAME, even if there is no such file."""
    return name.startswith(tuple(f"{project}:" for project in _PROJECTS))


def similar_names(name: str) -> list[str]:
    """Return the names of published weights of a net, such as "resnet50", without its project."""
    names = (f"{project}:{name}" for project in _PROJECTS)
    return [name for name in names if name in PUBLISHED]


def published_file(name: str) -> Path:
    """Return the path of a published file on this machine, after comparing its hash.

    Args:
        name: PROJECT:NAME, a key of `PUBLISHED`.

    Raises:
        ValueError: If the name is unknown, or the file is not on this machine or is another one.
            The message has the file's address, the first digits of its hash, and its path.
    """
    if name not in PUBLISHED:
        raise ValueError(f"{name!r} is unknown; {suggest_name(name, PUBLISHED)}")
    file = PUBLISHED[name]
    download = f"curl -L --create-dirs -o {shlex.quote(str(file.path))} {file.address}"
    if not file.path.is_file():
        raise ValueError(
            f"{name} is not on this machine, and this package downloads nothing; "
            f"run {download} (its SHA-256 begins with {file.digits})"
        )
    if not (hashed := sha256_of_file(file.path)).startswith(file.digits):
        raise ValueError(
            f"{name}: {file.path} has a SHA-256 that begins with {hashed[:8]}, not with "
            f"{file.digits}; download it again: {download}"
        )
    return file.path


def describe_random_start(model: str, images: int) -> list[str]:
    """Return a line that names published weights if there are few images, else []."""
    if images >= _FEW:
        return []
    names = (f"{project}:{model.replace('se_', 'se')}" for project in _PROJECTS)
    name = next((name for name in names if name in PUBLISHED), "torchvision:resnet18")
    return [
        f"weights     none: the net starts from random numbers, and {images:,} images are few; "
        f"--weights {name} shows where to get weights that were trained on ImageNet"
    ]
