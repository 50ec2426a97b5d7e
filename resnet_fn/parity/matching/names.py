"""The names of parameters in words that both frameworks share."""

import re
from collections import defaultdict
from collections.abc import Iterable

# MindSpore's leaf names: torch's. nn.BatchNorm3d is a cell around a BatchNorm2d.
_LEAVES = {
    "gamma": "weight",
    "beta": "bias",
    "embedding_table": "weight",
    "w": "weight",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_FUSED = re.compile(r"^(?:in_proj|qkv|qkv_proj|to_qkv|wqkv|c_attn|query_key_value)[._](weight|bias)$", re.IGNORECASE)
_ONE = re.compile(
    r"^(?:to_|w|wx|linear_|lin_|dense_|fc_|proj_)?(?P<role>q|k|v|query|key|value|queries|keys|values)"
    r"(?:_proj|_lin|_linear|_dense|_fc|_layer)?[._](?P<leaf>weight|bias)$",
    re.IGNORECASE,
)
_OUT = re.compile(
    r"^(?:out_proj|proj|out|to_out|to_out\.0|o_proj|wo|o|dense|out_lin|linear_out|projection|c_proj|fc_out|out_linear)"
    r"[._](weight|bias)$",
    re.IGNORECASE,
)

Piece = tuple[str, int, int]  # a parameter's name, which part of it, of how many


def leaf_name(leaf: str) -> str:
    """A leaf as torch calls it: "gamma" is "weight"."""
    leaf = leaf.removeprefix("bn2d.")
    return _LEAVES.get(leaf, leaf)


def role(layer: str) -> str:
    """Which of an attention's projections a layer is by its name: "q", "k", "v", "" where the name does not say."""
    found = _ONE.match(layer.rpartition(".")[2] + ".weight")
    return found["role"][0].lower() if found else ""


def pieces(names: Iterable[str]) -> dict[str, Piece]:
    """What each array holds, by a key that both frameworks share.

    "bn.gamma" holds "bn.weight"; an attention's "in_proj_weight" or "qkv.weight" holds "q.weight", "k.weight" and
    "v.weight" in equal parts.
    """
    known = list(names)
    attentions = {prefix for name in known for prefix, rest in _splits(name) if _FUSED.match(rest) or _ONE.match(rest)}
    found: dict[str, Piece] = {}
    for name in known:
        keys = _keys(name, attentions)
        if any(key in found for key in keys):  # "q.weight" beside "query.weight": no names of one attention
            keys = (name,)
        for index, key in enumerate(keys):
            found[key] = (name, index, len(keys))
    return found


def _keys(name: str, attentions: set[str]) -> tuple[str, ...]:
    for prefix, rest in _splits(name):
        if fused := _FUSED.match(rest):
            return tuple(f"{prefix}{one}.{fused[1]}" for one in "qkv")
        if one := _ONE.match(rest):
            return (f"{prefix}{one['role'][0].lower()}.{one['leaf']}",)
        if prefix in attentions and (out := _OUT.match(rest)):
            return (f"{prefix}out.{out[1]}",)
    prefix, dot, leaf = name.rpartition(".")
    return (f"{prefix.removesuffix('.bn2d')}{dot}{leaf_name(leaf)}",)


def _splits(name: str) -> list[tuple[str, str]]:
    """The name cut before its last two and three words: ("block.0.attn.", "q.weight")."""
    words = name.split(".")
    return [
        (".".join(words[:-count]) + ("." if len(words) > count else ""), ".".join(words[-count:]))
        for count in (1, 2, 3)
        if len(words) >= count
    ]


def holders(found: dict[str, Piece]) -> dict[str, list[str]]:
    """The keys of each array, in order."""
    keys: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for key, (name, index, _) in found.items():
        keys[name].append((index, key))
    return {name: [key for _, key in sorted(entries)] for name, entries in keys.items()}
