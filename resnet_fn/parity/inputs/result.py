"""All that the command shows: the verdict, the augmentation, and where causes are."""

import dataclasses
from collections.abc import Mapping, Sequence

from resnet_fn.parity.inputs.comparing import InputsVerdict
from resnet_fn.parity.inputs.law import Law


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of `parity inputs`."""

    verdict: InputsVerdict
    port: str  # what was compared, as the user named it
    reference: str
    pictures: str  # where the pictures are from, in words
    law: Law | None = None  # of random augmentation; None if both sides are not random
    # what a cause belongs to → the line of the reference's code
    places: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()  # how the pictures reached both sides
