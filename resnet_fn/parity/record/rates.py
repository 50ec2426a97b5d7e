"""Read the dropout rates of a net, set them to 0, and put them back for a while."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from resnet_fn.parity.record.kinds import kind_of
from resnet_fn.parity.record.side import Dropped, Only

# Attributes with a dropout probability: `dropout` of attention and LSTMs, drop_prob of timm's
# DropPath. Some layers pass the probability to a function: drop_rate of torchvision's DenseNet,
# attention_dropout of its Swin.
DROPS = (
    "dropout",
    "drop_prob",
    "drop_path_prob",
    "dropout_p",
    "dropout_prob",
    "attn_drop_prob",
    "p_dropout",
    "attention_dropout",
    "drop_rate",
    "layerdrop",
)

# attributes of dropout layers: MindSpore's nn.Dropout(0.9) keeps 0.9
_OF_DROPOUT = ("p", "prob", "keep_prob")


def _shares(layer: Any) -> Iterator[tuple[str, float, list[tuple[Any, str]]]]:
    """Yield (name, probability, places) for each dropout of a layer.

    Each place is an attribute, as (object, name).
    """
    # MindCV's DropPath
    attributes: dict[str, Sequence[str]] = {name: (name,) for name in DROPS}
    attributes["p"] = ("keep_prob",)
    if kind_of(layer) == "dropout" or type(layer).__name__ == "StochasticDepth":
        attributes = {"p": (*_OF_DROPOUT, *DROPS)}
    for word, names in attributes.items():
        holders = [layer]
        if word == "layerdrop":
            holders.append(getattr(layer, "config", None))
        places = []
        for holder in holders:
            for name in names:
                if _is_number(getattr(holder, name, None)):
                    places.append((holder, name))
        if places:
            holder, name = places[0]
            share = float(getattr(holder, name))
            if name == "keep_prob":
                share = round(1.0 - share, 6)
            yield word, share, places


def _is_number(value: Any) -> bool:
    """Return whether a value is one number of Python, NumPy or a framework.

    A bool is not a number.
    """
    return not isinstance(value, bool) and (
        isinstance(value, int | float) or getattr(value, "shape", None) == ()
    )


class _Place(NamedTuple):
    """An attribute with a dropout rate, found by the layer's path in the net or in a copy of it."""

    layer: str
    in_config: bool  # whether it is an attribute of the layer's `config`
    attribute: str  # of `Dropped`
    name: str
    built: Any  # the value as the net was built

    def holder(self, layers: Mapping[str, Any]) -> Any:
        """Return the object that has the attribute."""
        layer = layers[self.layer]
        return layer.config if self.in_config else layer

    @property
    def off(self) -> Any:
        """The value without dropout, of the same type."""
        return self.built * 0 + (self.name == "keep_prob")


def _is_on(rate: _Place, only: Only) -> bool:
    """Return whether a rate is among `only`. All rates of a layer include those of layers inside."""
    for layer, attribute in only:
        if rate.layer == layer and attribute in ("", rate.attribute):
            return True
        if not attribute and rate.layer.startswith(f"{layer}."):
            return True
    return False


class Rates:
    """The dropout rates of a net as it was built.

    `layers` of the methods are the layers by path, of the net or of a copy.
    """

    def __init__(self, layers: Mapping[str, Any]) -> None:
        self.dropped: Dropped = []  # (layer's path, attribute, dropout probability)
        self._places: list[_Place] = []
        for name, layer in layers.items():
            for word, share, places in _shares(layer):
                if share <= 0:
                    continue
                self.dropped.append((name, word, share))
                for holder, attribute in places:
                    built = getattr(holder, attribute)
                    rate = _Place(name, holder is not layer, word, attribute, built)
                    self._places.append(rate)
                    setattr(holder, attribute, rate.off)  # a shared config counts once
        for rate in self._places:
            setattr(rate.holder(layers), rate.name, rate.built)

    def switch_off(self, layers: Mapping[str, Any]) -> None:
        """Set all rates to 0."""
        for rate in self._places:
            setattr(rate.holder(layers), rate.name, rate.off)

    def off(self, layers: Mapping[str, Any]) -> contextlib.AbstractContextManager[None]:
        """Return a context in which all rates are 0."""
        return self._context(layers, self._places, lambda rate: rate.off)

    def as_built(
        self, layers: Mapping[str, Any], only: Only | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the rates are those of the net as it was built.

        `only` has the only rates that change; None: all change.
        """
        places = [rate for rate in self._places if only is None or _is_on(rate, only)]
        return self._context(layers, places, lambda rate: rate.built)

    @contextlib.contextmanager
    def _context(
        self, layers: Mapping[str, Any], places: Sequence[_Place], value: Callable[[_Place], Any]
    ) -> Iterator[None]:
        with contextlib.ExitStack() as restored:
            for rate in places:
                holder = rate.holder(layers)
                restored.callback(setattr, holder, rate.name, getattr(holder, rate.name))
                setattr(holder, rate.name, value(rate))
            yield


@contextlib.contextmanager
def without_dropout(layers: Iterable[tuple[str, Any]]) -> Iterator[Dropped]:
    """Turn dropout off inside a `with` block, because the two frameworks draw different masks.

    Compile the net inside the `with` block. Yields a list of (layer's path, attribute, original
    dropout probability).
    """
    by_path = dict(layers)
    rates = Rates(by_path)
    with rates.off(by_path):
        yield rates.dropped
