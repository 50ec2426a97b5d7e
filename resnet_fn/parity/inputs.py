"""The first stage: do both sides get the same inputs and labels?"""

from collections.abc import Sequence

from resnet_fn.parity.compare import Stage, difference
from resnet_fn.parity.traces.batches import Batch, named_leaves

INPUTS = "inputs"


def inputs_stage(ours: Sequence[Batch], theirs: Sequence[Batch]) -> Stage:
    """Do both sides get the same inputs and labels, bit for bit?"""
    found = []
    for update, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        for which, single in enumerate(("inputs", "labels")):
            a, b = named_leaves(mine[which], single), named_leaves(other[which], single)
            if {name: value.shape for name, value in a.items()} != {name: value.shape for name, value in b.items()}:
                return Stage(INPUTS, failed=f"update {update + 1}: the {single} have other names or shapes")
            found += [difference(f"{name} of update {update + 1}", a[name], b[name]) for name in b]
    return Stage(INPUTS, found)
