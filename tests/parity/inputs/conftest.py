"""What the tests of inputs share: the twelve pictures, and what two sides read of them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from resnet_fn.parity.inputs.comparing import InputsVerdict, compare_pictures
from resnet_fn.parity.inputs.law import Law, compare_laws
from resnet_fn.parity.inputs.pictures import Picture, make_pictures
from resnet_fn.parity.inputs.reading import Side, read_or_error, side_of


@pytest.fixture(scope="session")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Picture]:
    """The twelve awkward pictures. Not to be changed."""
    return make_pictures(str(tmp_path_factory.mktemp("inputs")))


@pytest.fixture(scope="session")
def side(twelve: Sequence[Picture]) -> Callable[..., Side]:
    """side(value): the side that reads the twelve pictures, or others, with this value."""
    return lambda value, pictures=twelve: side_of(value, "side.py:f", "--net", "", pictures, 0)


@pytest.fixture(scope="session")
def compared(side: Any, twelve: Sequence[Picture]) -> Callable[..., InputsVerdict]:
    """compared(port, reference): the verdict on the twelve pictures, or on `pictures`."""

    def compare(port: Any, reference: Any, pictures: Sequence[Picture] = twelve) -> InputsVerdict:
        sides = side(port, pictures), side(reference, pictures)
        read = [{picture: read_or_error(way, picture) for picture in pictures} for way in sides]
        return compare_pictures(*read, made=True)

    return compare


@pytest.fixture
def law(side: Any, tmp_path: Any) -> Callable[..., Law]:
    """law(port, reference, draws): the verdict on random augmentation."""
    return lambda port, reference, draws: compare_laws(
        side(port), side(reference), str(tmp_path), draws
    )
