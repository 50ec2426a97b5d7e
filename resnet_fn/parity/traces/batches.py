"""The batches that both sides see: arrays, or tuples or dicts of them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from resnet_fn.config.recipe import Recipe
from resnet_fn.data.mix import draw_mixing, mix

Tree = Any  # an array, or a tuple, list or dict of trees
Batch = tuple[Tree, Tree]  # inputs, labels: NumPy arrays [n, …] of any dtype, or tuples or dicts of them
Arrays = dict[str, np.ndarray]


def leaves(tree: Tree) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every leaf with the keys that lead to it: ((), x) of a single array, (("mask",), x) of a dict's entry."""
    if isinstance(tree, Mapping):
        pairs: Iterator[tuple[Any, Any]] = iter(tree.items())
    elif isinstance(tree, tuple | list):
        pairs = iter(enumerate(tree))
    else:
        yield (), tree
        return
    for key, branch in pairs:
        for path, leaf in leaves(branch):
            yield (key, *path), leaf


def named_leaves(tree: Tree, single: str) -> dict[str, Any]:
    """Leaves by name: `single` where there is only one at the top, else "single 0", "single mask", "single 0 1"."""
    return {" ".join([single, *map(str, path)]): leaf for path, leaf in leaves(tree)}


def describe(tree: Tree) -> str:
    """Every leaf's name, type and shape: "inputs mask bool [4, 7], inputs ids int64 [4, 7]"."""
    return ", ".join(f"{name} {leaf.dtype} {list(leaf.shape)}" for name, leaf in named_leaves(tree, "inputs").items())


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """The same tree with every leaf changed; lists become tuples."""
    if isinstance(tree, Mapping):
        return {key: map_tree(function, branch) for key, branch in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(map_tree(function, branch) for branch in tree)
    return function(tree)


def split(tree: Tree, parts: int) -> list[Tree]:
    """The tree's micro-batches: every leaf [n, …] in so many equal pieces along its first axis."""
    return [map_tree(lambda leaf: np.split(leaf, parts)[part], tree) for part in range(parts)]  # noqa: B023


def make_batches(
    updates: int, batch_size: int, channels: int, image_size: int, classes: int, seed: int = 0
) -> list[Batch]:
    """Random batches that can be learnt: each class has its own pattern, under as much noise.

    Labels without any relation to the images would leave the loss where it is, and a trajectory that goes nowhere
    proves little.

    Returns:
        `updates` pairs of images float32 [batch_size, channels, image_size, image_size] and labels int32
        [batch_size].
    """
    rng = np.random.default_rng([seed, 20])
    shape = (channels, image_size, image_size)
    patterns = rng.standard_normal((min(classes, 10), *shape)).astype(np.float32)
    batches = []
    for _ in range(updates):
        labels = rng.integers(0, len(patterns), batch_size).astype(np.int32)
        noise = rng.standard_normal((batch_size, *shape)).astype(np.float32)
        batches.append((np.ascontiguousarray((patterns[labels] + noise) * np.float32(0.7)), labels))
    return batches


def recipe_batches(recipe: Recipe, batches: Sequence[Batch], classes: int, seed: int) -> list[Batch]:
    """Batches as the recipe feeds them: samples repeated as in repeated augmentation, mixed by mixup or CutMix.

    Labels that are mixed become probabilities, float32 [n, classes].
    """
    found = []
    for update, (images, labels) in enumerate(batches):
        rows = np.arange(len(images)) % (len(images) // recipe.repeats)
        images, labels = images[rows], labels[rows]
        if recipe.mixup or recipe.cutmix:
            rng = np.random.default_rng([seed, 21, update])
            mixing = draw_mixing(rng, recipe.mixup, recipe.cutmix, recipe.mix_switch, *images.shape[2:])
            images, labels = mix(images, labels, classes, mixing)
            if recipe.label_threshold:
                labels = (labels > recipe.label_threshold).astype(np.float32)
        found.append((images, labels))
    return found


def check_batches(batches: Sequence[Batch], accumulate: int) -> None:
    """Refuse batches that would recompile the step or do not divide.

    Raises:
        ValueError: names the batch, its size and the fix.
    """
    if not isinstance(batches, list | tuple) or not batches:
        raise ValueError("batches: there are none; give a list with one (inputs, labels) for each update")
    first = None
    for index, batch in enumerate(batches):
        if not (isinstance(batch, tuple | list) and len(batch) == 2):
            raise ValueError(f"batches: batch {index} is {type(batch).__name__}; give a pair (inputs, labels)")
        shapes = {}
        for path, leaf in leaves(tuple(batch)):
            words = " ".join(["inputs" if path[0] == 0 else "labels", *map(str, path[1:])])
            if not isinstance(leaf, np.ndarray) or leaf.ndim == 0 or not _is_taken(leaf.dtype):
                what = f"an array of {leaf.dtype}" if isinstance(leaf, np.ndarray) else type(leaf).__name__
                raise ValueError(
                    f"batches: batch {index}, {words}: {what}; give a NumPy array [n, …] of float32, integers or bool"
                )
            shapes[words] = (leaf.shape, leaf.dtype)
        first = first or shapes
        if shapes != first:
            words = next(name for name in {**first, **shapes} if shapes.get(name) != first.get(name))
            found, wanted = _shape(shapes.get(words)), _shape(first.get(words))
            raise ValueError(f"batches: batch {index}, {words}: {found}; batch 0 has {wanted}; give all one shape")
    sizes = {name: shape[0] for name, (shape, _) in (first or {}).items()}
    if len(set(sizes.values())) > 1:
        words = ", ".join(f"{size} {name}" for name, size in sizes.items())
        raise ValueError(f"batches: {words}; give as many of each")
    size = next(iter(sizes.values()))
    if size % accumulate:
        raise ValueError(f"accumulate: {accumulate} does not divide the batch of {size}; give a divisor of {size}")


def _is_taken(dtype: np.dtype) -> bool:
    return dtype == np.float32 or dtype.kind in "iub"


def _shape(found: Any) -> str:
    return "none" if found is None else f"{found[1]} {list(found[0])}"
