"""Compare the settings of both optimizers for each parameter."""

import dataclasses
from collections import defaultdict

from resnet_fn.parity.compare.allowed import NO_TOLERANCE, SETTINGS_TOLERANCE, within
from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Stage
from resnet_fn.parity.trace import stages
from resnet_fn.parity.trace.data import RATE_SETTING
from resnet_fn.parity.trace.difference import DIFFERS, Difference
from resnet_fn.parity.trace.stages import ArrayId, StageId

UPDATED = "updated"  # as `ArrayId.setting`: whether the optimizer updates the parameter at all


@dataclasses.dataclass(frozen=True)
class OptimizerSettings(Rule):
    """Compares every setting that both sides have."""

    id: StageId = stages.SETTINGS
    tolerance: float = SETTINGS_TOLERANCE
    trains: bool = False
    rounded: bool = False

    def stage(self, sides: Sides) -> Stage | None:
        """Return the comparison with a line for each setting that differs, or None without
        settings.
        """
        port, reference = sides.port.optimizer_settings, sides.reference.optimizer_settings
        names, differences = sides.names, list[Difference]()
        groups: dict[str, list[str]] = defaultdict(list)
        for name in names.parameters if RATE_SETTING in port and RATE_SETTING in reference else ():
            updated_in_port, updated_in_reference = (
                name in port[RATE_SETTING],
                any(source in reference[RATE_SETTING] for source in names.sources(name)),
            )
            if updated_in_port != updated_in_reference:
                item = within(NO_TOLERANCE).compare(
                    ArrayId(name, setting=UPDATED), updated_in_port, updated_in_reference
                )
                differences.append(item)
                side = "in the port" if updated_in_port else "in the reference"
                groups[f"updated by the optimizer {side} only"].append(name)
        for word in [word for word in port if word in reference]:
            for name, value in port[word].items():
                known = [
                    reference[word][source]
                    for source in names.sources(name)
                    if source in reference[word]
                ]
                for reference_value in {*known}:
                    item = within(self.tolerance).compare(
                        ArrayId(name, setting=word), value, reference_value
                    )
                    differences.append(item)
                    if item.verdict == DIFFERS:
                        line = (
                            f"{word}: {value:.6g} in the port, {reference_value:.6g} in the "
                            "reference"
                        )
                        groups[line].append(name)
        if not differences:
            return None
        hints = [
            f"{hint} ({len(many)} parameters, first {many[0]})" for hint, many in groups.items()
        ]
        return Stage(self.id, differences, hints=hints)
