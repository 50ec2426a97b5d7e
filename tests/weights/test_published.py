"""Names of published weights, their files and hashes."""

import hashlib
import re
from pathlib import Path

import pytest

from resnet_fn import convert
from resnet_fn.models import MODELS
from resnet_fn.weights.load import read_weights
from resnet_fn.weights.published import PUBLISHED, Published, describe_random_start, published_file

PAGE = Path(__file__).parents[2] / "docs" / "finetuning.md"


def test_a_missing_published_file_is_named_with_address(monkeypatch, raises_line):
    """Its address, the digits of its hash, and the place of PyTorch's own cache."""
    monkeypatch.setenv("TORCH_HOME", "cache")
    address = "https://download.pytorch.org/models/resnet50-11ad3fa6.pth"
    place = "cache/hub/checkpoints/resnet50-11ad3fa6.pth"
    with raises_line("torchvision:resnet50 ", place, address, "begins with 11ad3fa6"):
        convert.main(["torchvision:resnet50", "a.safetensors"])
    with raises_line("'timm:resnet50.a1_in2k' is unknown", "timm:resnet50.a1_in1k"):
        read_weights("timm:resnet50.a1_in2k")


def test_a_cached_file_needs_the_right_hash(monkeypatch, written, raises_line):
    monkeypatch.setenv("TORCH_HOME", "cache")
    place = PUBLISHED["torchvision:resnet18"].path
    place.parent.mkdir(parents=True)
    place.write_bytes(b"of another file")
    with raises_line(f"torchvision:resnet18: {place} ", "not with f37072fd; download it again"):
        published_file("torchvision:resnet18")
    ours = written("b.safetensors", "torchvision")
    data = Path("b.safetensors").read_bytes()
    digits = hashlib.sha256(data).hexdigest()[:8]
    small = Published(f"https://example.com/small-{digits}.safetensors", digits)
    monkeypatch.setitem(PUBLISHED, "timm:small", small)
    PUBLISHED["timm:small"].path.write_bytes(data)
    source = read_weights("timm:small")
    assert source.path == Path(f"cache/hub/checkpoints/small-{digits}.safetensors")
    assert source.arrays["fc.bias"].tobytes() == ours["fc.bias"].tobytes()


def test_the_caches_are_those_of_the_projects(monkeypatch):
    for name in ("TORCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    torchs = PUBLISHED["torchvision:resnet18"]
    mindcvs = PUBLISHED["mindcv:resnet18"]
    name = "torch/hub/checkpoints/resnet18-f37072fd.pth"
    assert torchs.path == Path("/home/me/.cache", name)
    assert mindcvs.path == Path("/home/me/.mindspore/models/resnet18-1e65cd21.ckpt")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert torchs.path == Path("/cache", name)


def test_a_random_start_suggests_published_weights():
    for model, name in (("resnet50", "torchvision:resnet50"), ("se_resnet50", "timm:seresnet50")):
        (line,) = describe_random_start(model, 40)
        assert "random numbers" in line
        assert f"--weights {name} " in line
        assert name in PUBLISHED
    assert "torchvision:resnet18" in describe_random_start("resnet8", 40)[0]
    assert describe_random_start("resnet50", 1_281_167) == []


def test_the_page_lists_the_published_files():
    """docs/finetuning.md: a row for each model, with a file of each project that has one."""
    page = PAGE.read_text(encoding="utf-8")
    rows = page.partition("| model | torchvision")[2].partition("\n\n")[0].splitlines()
    projects = ("torchvision", "timm", "mindcv")
    starts = re.findall(r"`(https://[^`]+)`", rows[0])
    for row in rows[2:]:
        model, *files = (cell.strip(" `") for cell in row.strip("|").split("|"))
        assert model in MODELS
        for project, start, file in zip(projects, starts, files, strict=True):
            name = f"{project}:{model.replace('se_', 'se')}"
            assert (name in PUBLISHED) == bool(file)
            assert not file or PUBLISHED[name].address == start + file
    assert len(rows) == 10


@pytest.mark.slow
def test_the_addresses_are_those_of_the_projects_code(torchvision):
    pytest.importorskip("timm", reason="pip install --no-deps timm")
    import timm
    import torchvision.models as theirs

    for name, file in PUBLISHED.items():
        project, _, net = name.partition(":")
        if project == "torchvision":
            assert theirs.get_model_weights(net).DEFAULT.url == file.address
        if project == "timm":
            url = timm.get_pretrained_cfg(net).url
            assert url.replace("/rwightman/", "/huggingface/") == file.address
