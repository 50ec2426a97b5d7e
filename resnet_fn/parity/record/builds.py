"""Build a net several times with different seeds, and record its initial values."""

import contextlib
import random
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import numpy as np

from resnet_fn.parity.trace.tree import Arrays

_BUILDS = 20

_NUMBERS = 2**22  # the most numbers in all builds together; a larger net is built twice


def several_builds(
    build: Callable[[], Any] | None, state: Callable[[Any], Arrays], seeds: Mapping[Any, str]
) -> list[Arrays]:
    """Return a net's arrays for each of several seeds, or [] without a function that builds it.

    `seeds` maps a module to the name of its seeding function.
    """
    if build is None:
        return []
    functions = {**seeds, random: "seed", np.random: "seed"}
    builds, wanted = list[Arrays](), 2
    while len(builds) < wanted:
        with contextlib.ExitStack() as seeded:
            for module, name in functions.items():
                generator = getattr(module, name)(len(builds) + 1)
                # While a net is built, seeding does nothing. A net that seeds itself would be equal
                # in all builds.
                seeded.enter_context(mock.patch.object(module, name, return_value=generator))
            builds.append(state(build()))
        wanted = max(
            2, min(_BUILDS, _NUMBERS // max(1, sum(array.size for array in builds[0].values())))
        )
    return builds
