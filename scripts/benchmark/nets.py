"""The nets that are measured, the flags that choose one, and the update that every side
computes.
"""

from typing import Any

from resnet_fn.config.recipe import Recipe

_IMAGENET = {"stem": "imagenet", "batch_size": 8, "image_size": 224, "steps": 2, "classes": 1000}
# name: model, stem, batch size, image size, steps of one turn; 10 classes unless given
NETS: dict[str, dict[str, Any]] = {
    "resnet18-cifar": {
        "model": "resnet18",
        "stem": "cifar",
        "batch_size": 32,
        "image_size": 32,
        "steps": 3,
    },
    "resnet50-224": {"model": "resnet50", **_IMAGENET},
    "se_resnet50-224": {"model": "se_resnet50", **_IMAGENET},
    "genet50_plus-224": {"model": "genet50_plus", **_IMAGENET},
    "resnet20-cifar": {
        "model": "resnet20",
        "stem": "cifar",
        "batch_size": 128,
        "image_size": 32,
        "steps": 6,
    },
    "resnet20-digits": {
        "model": "resnet20",
        "stem": "cifar",
        "batch_size": 64,
        "image_size": 16,
        "steps": 20,
    },
    "resnet8-digits": {
        "model": "resnet8",
        "stem": "cifar",
        "batch_size": 64,
        "image_size": 16,
        "steps": 40,
    },
}
NET = {"net": ("resnet18-cifar", ", ".join(NETS)), "rounds": (5, "turns of each side")}
THREADS = {"threads": (0, "CPU threads of each; 0: its own default")}


def check_name(flag: str, name: str, known: Any) -> None:
    """Reject a flag's value that is not among the known ones."""
    if name not in known:
        raise ValueError(f"--{flag}: {name!r} is unknown; give one of {', '.join(known)}")


def specification(net: str, threads: int) -> dict[str, Any]:
    """A side's net and batch, as JSON types: a row of NETS with its classes and threads."""
    check_name("net", net, NETS)
    return {"classes": 10, "threads": threads, **NETS[net]}


def recipe(spec: dict[str, Any]) -> Recipe:
    """The update that every side computes: `Recipe`'s own optimizer, clipping and label
    smoothing.
    """
    fields = {name: spec[name] for name in ("model", "stem", "batch_size", "image_size")}
    return Recipe(dataset="synthetic", learning_rate=0.1, **fields)


def build(spec: dict[str, Any]) -> Any:
    """The specification's net, a MindSpore Cell, for colour images."""
    from resnet_fn.data.sources.files import color_spec
    from resnet_fn.models import build_net

    names = tuple(map(str, range(spec["classes"])))
    return build_net(recipe(spec), color_spec("random", names, (0.5,) * 3, (0.25,) * 3))
