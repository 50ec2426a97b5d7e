"""Initial values by several builds: what only the distribution of one build would not show is
named.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from resnet_fn.parity.__main__ import main
from resnet_fn.parity.compare.initial import initial_stage
from resnet_fn.parity.pair.name_map import MadeOf, NameMap, Part
from resnet_fn.parity.record.builds import several_builds
from resnet_fn.parity.show.titles import title_of

Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def orthogonal(rng, rows, columns):
    return np.linalg.qr(rng.normal(size=(columns, rows)))[0].T * columns**0.5


def drawn(rng):
    """A sine table that is trained, a prior, a drawn matrix, gates of which one has a bias, one
    small array.
    """
    arrays = {
        "table": np.sin(np.arange(24)[:, None] / 10 ** np.arange(8)),
        "prior": np.full(6, -np.log(99)),
        "weight": rng.normal(size=(24, 16)),
        "gates": np.repeat([0.0, 1.0, 0.0, 0.0], 6),
        "recurrent": np.concatenate([orthogonal(rng, 6, 16) for _ in range(4)]),
        "copies": rng.normal(size=(4, 3, 9)).repeat(4, 0),
        "few": rng.normal(size=3),
        "padded": np.concatenate([np.zeros((1, 8)), rng.normal(size=(9, 8))]),
    }
    return {name: value.astype(np.float32) for name, value in arrays.items()}


def builds(name="", change=None, seed=0):
    made = []
    for index in range(20):
        rng = np.random.default_rng([seed, index])
        arrays = drawn(rng)
        if change:
            arrays[name] = change(arrays[name], rng).astype(np.float32)
        made.append(arrays)
    return made


BLOCKS = np.repeat([1, 0.7, 1, 1.2], 6)[:, None]
FAULTS: dict[str, Change] = {
    "table: not random:": lambda value, rng: value[:, ::-1],
    "prior: not random: -4.5999999 in the port, -4.5951": lambda value, rng: np.full(6, -4.6),
    "copies: its numbers depend on each other": lambda value, rng: rng.normal(size=(16, 3, 9)),
    "gates: not random:": lambda value, rng: np.roll(value, 6),
    "weight rows 6:12: drawn": lambda value, rng: value * BLOCKS,
    "weight: drawn": lambda value, rng: 2 * value,
    "recurrent rows 0:6: its rows are orthogonal in the reference only": lambda value, rng: (
        rng.normal(size=(24, 16))
    ),
    "few: drawn": lambda value, rng: 10 * value,
    "padded row 0: drawn": lambda value, rng: rng.normal(size=(10, 8)),
}


@pytest.mark.parametrize("words", FAULTS)
def test_arrays_initialised_otherwise_are_named(words):
    name = re.match(r"\w+", words)[0]
    stage = initial_stage(builds(name, FAULTS[words], 1), builds())
    assert stage.verdict == "DIFFERS"
    assert any(hint.startswith(words) for hint in stage.hints), stage.hints
    assert len(stage.hints) == 1 or f"{name}: drawn" not in str(stage.hints)
    differing = [item.name for item in stage.differences if item.verdict == "DIFFERS"]
    assert {item.split(" ")[0] for item in differing} == {name}


SINGLE = {
    "": lambda rng: rng.normal(0, 1, (50, 40)),
    "kurtosis": lambda rng: rng.uniform(-(3**0.5), 3**0.5, (50, 40)),  # its standard deviation is 1
    "std": lambda rng: rng.normal(0, 1.3, (50, 40)),
    "mean": lambda rng: rng.normal(0.3, 1, (50, 40)),
}


@pytest.mark.parametrize("moment", SINGLE)
def test_the_moment_that_differs_is_named(moment):
    def drawn(kind, seed):
        rng = np.random.default_rng(seed)
        return [{"weight": SINGLE[kind](rng), "gamma": np.ones(40), "few": rng.normal(size=4)}]

    for seed in range(20):
        port = drawn(moment, seed)
        assert initial_stage(port, drawn(moment, 1000 + seed)).verdict == "ok"
        if moment:
            stage = initial_stage(port, drawn("", 1000 + seed))
            assert (stage.verdict, title_of(stage.first.id)) == ("DIFFERS", f"weight {moment}")
            assert stage.hints[0].startswith("weight: drawn in ")


def test_parts_of_unequal_size_are_compared_separately():
    """Of --map: 24 rows of q, 4 of k, which are drawn too wide, and 4 of v."""
    weights = {"q": np.zeros((24, 16)), "k": np.zeros((4, 16)), "v": np.zeros((4, 16))}
    names = NameMap("names", {"qkv": MadeOf(tuple(map(Part, weights)))}, {}, ())
    rng = np.random.default_rng(0)
    ours, theirs = ([{"qkv": rng.normal(size=(32, 16))} for _ in range(20)] for _ in range(2))
    for one in ours:
        one["qkv"][24:28] *= 2
    whole, part = initial_stage(ours, theirs, names.seams(weights)).hints
    assert whole.startswith("qkv: drawn")
    assert part.startswith("qkv rows 24:28: drawn")


def test_builds_of_equal_nets_agree_up_to_rounding():
    def rounded(value, rng):
        return np.nextafter(value, np.float32(2))

    for seed in range(1, 30):
        stage = initial_stage(builds("table", rounded, seed), builds(seed=100 + seed))
        assert stage.verdict == "ok", stage.hints


def test_a_repeated_draw_of_one_side_counts_once():
    once = builds()[0]
    for seed in range(1, 10):
        assert initial_stage([once] * 20, builds(seed=seed)).verdict == "ok"


@pytest.mark.parametrize("side", ["port", "reference"])
def test_numbers_fixed_in_one_net_are_listed(side):
    """Such a port may start alike in every run. The sine table and the prior are fixed in both."""
    fixed = builds()[0]
    named = ("weight", "few")
    once = [{**arrays, **{name: fixed[name] for name in named}} for arrays in builds(seed=1)]
    sides = (once, builds()) if side == "port" else (builds(), once)
    line = f"initial values that are the same in each build of the {side} alone: weight, few"
    assert initial_stage(*sides).not_exercised == [line]
    assert initial_stage(sides[0][:1], sides[1][:1]).not_exercised == []


def test_a_fixed_array_that_differs_needs_no_line():
    zeros = [{**arrays, "weight": 0 * arrays["weight"]} for arrays in builds()]
    stage = initial_stage(zeros, builds(seed=1))
    assert (stage.verdict, stage.not_exercised) == ("DIFFERS", [])


def test_each_build_gets_a_seed_of_its_own():
    def build():
        np.random.seed(0)
        return np.random.normal(size=5)

    np.random.seed(3)
    made = several_builds(build, lambda net: {"w": net}, {})
    assert len({float(one["w"][0]) for one in made}) == len(made) == 20
    assert build()[0] == build()[0]  # seeding is as before
    assert len(several_builds(build, lambda net: {"w": np.zeros(2**22)}, {})) == 2


@pytest.mark.parametrize(
    ("drawn", "words"),
    [
        ("3 * np.random.normal(size=48)", ""),
        ("np.random.normal(size=48)", "drawn in .* with standard deviation [01]"),
    ],
)
def test_random_buffers_are_compared_by_their_moments(drawn, words):
    from small_nets import write_net

    layers = (
        'self.register_buffer("frequencies", 3 * torch.randn(48)); '
        'self.register_buffer("table", torch.arange(48.0)); self.head = nn.Linear(48, 10)'
    )
    body = "return self.head({}.sin(self.frequencies * x.reshape(len(x), -1) + self.table))"
    write_net("theirs.py", "torch", layers, body.format("torch"))
    layers = (
        f"self.frequencies = Parameter(Tensor({drawn}.astype(np.float32)), requires_grad=False); "
        "self.table = Parameter(Tensor(np.arange(48, dtype=np.float32)), requires_grad=False); "
        "self.head = nn.Dense(48, 10)"
    )
    write_net("ours.py", "mindspore", layers, body.format("ops"))
    flags = "--reference theirs.py:Net --net ours.py:Net --image-size 4 --steps 2 --quick --mode "
    assert main([*flags.split(), "pynative", "--json", "ladder.json"]) == bool(words)
    ladder = json.loads(Path("ladder.json").read_text())
    stages = {stage["name"]: stage for stage in ladder["stages"]}
    assert [item["name"] for item in stages["untrained arrays"]["differences"]] == ["table"]
    differing = [name for name, stage in stages.items() if stage["verdict"] == "DIFFERS"]
    assert differing == (["initialisation"] if words else [])
    hints = stages["initialisation"]["hints"]
    named = [hint for hint in hints if not hint.startswith("head")]
    assert bool(named) == bool(words)
    assert all(re.match(f"frequencies.*{words}", hint) for hint in named), named
