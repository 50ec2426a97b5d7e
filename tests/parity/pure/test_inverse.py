"""The port's arrays under the reference's names: the inverse of how a port's arrays are built."""

import numpy as np

from resnet_fn.parity.pair.inverse import as_in_reference
from resnet_fn.parity.pair.name_map import MadeOf, NameMap, Part, whole_array

SHAPES = {"in_proj": (6, 4), "conv": (3, 2, 5), "decay": (4,), "a": (3,), "b": (3,), "tok": (5, 2)}

PARAMETERS = {
    "q": MadeOf((Part("in_proj", share=(0, 3)),)),
    "kv": MadeOf((Part("in_proj", share=(1, 3)), Part("in_proj", share=(2, 3)))),
    "conv": MadeOf((Part("conv", transpose=(1, 0, 2)),), shape=(2, 3, 1, 5)),
    "rate": MadeOf((Part("decay", sign=-1),)),
    "both": MadeOf((Part("a"), Part("b")), join=0),
    "head": whole_array("out"),
}


def test_arrays_get_the_references_names_and_layout():
    rng = np.random.default_rng(0)
    given = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    names = NameMap("names", PARAMETERS, {}, (), tied=(("tok", "out"),))
    made = as_in_reference(names, names.rename(given), SHAPES)
    assert made.keys() == SHAPES.keys()
    for name, array in given.items():
        assert np.array_equal(made[name], array), name


def test_arrays_present_in_part_are_left_out():
    parts = {"q": PARAMETERS["q"], "bias": MadeOf((Part("a"), Part("b")), added=True)}
    names = NameMap("names", parts, {}, ())
    port = {"q": np.ones((2, 4)), "bias": np.ones(3)}
    assert as_in_reference(names, port, SHAPES) == {}
