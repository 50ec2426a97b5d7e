"""Compare both sides stage by stage, with the rounding that they have."""

from collections.abc import Mapping, Sequence

from resnet_fn.parity.compare import remarks
from resnet_fn.parity.compare.randomness import undecided_if_random
from resnet_fn.parity.compare.result import Verdict
from resnet_fn.parity.compare.rule import Rule
from resnet_fn.parity.compare.rules import RULES
from resnet_fn.parity.compare.sides import Sides
from resnet_fn.parity.compare.stage import Absent, Stage
from resnet_fn.parity.compare.ties import by_either_decision
from resnet_fn.parity.compare.workers import PortWorkers, merged
from resnet_fn.parity.trace.difference import Difference
from resnet_fn.parity.trace.stages import StageId


def compare_stages(sides: Sides, unchanged: Mapping[StageId, Stage] | None = None) -> list[Stage]:
    """Compare both sides stage by stage.

    `unchanged` has the stages of an earlier call with another rounding. Those that do not depend on
    the rounding are not compared again.
    """
    workers = PortWorkers(sides.port)
    others = [sides.of_worker(worker) for worker in sides.port.workers[1:]]
    result = []
    for rule in RULES:
        if unchanged is not None and not rule.rounded:
            result += [unchanged[rule.id]] if rule.id in unchanged else []
        elif stage := _one(rule, sides, others, workers):
            result.append(stage)
    return result


def _one(rule: Rule, sides: Sides, others: Sequence[Sides], workers: PortWorkers) -> Stage | None:
    """Return the stage of a rule. `others` are the sides of the port's workers after the first."""
    stage = by_either_decision(rule.stage, sides)
    if sides.port.workers and rule.each_worker:
        of_others = [by_either_decision(rule.stage, other) for other in others]
        if stage is None and any(of_others):
            stage = Stage(rule.id, absent=Absent.NOT_IN_TASK)
        stage = stage and rule.with_workers(merged(stage, of_others), workers)
    if stage is None:
        return None
    if rule.trains:
        stage = undecided_if_random(stage, sides.port, sides.reference)
    return stage


def verdict_by_recorded_rounding(sides: Sides) -> Verdict:
    """Return the verdict by the rounding that the reference's trace has, without probes."""
    port, reference = sides.port, sides.reference
    modes = port.environment.get("mode"), reference.environment.get("mode")
    return Verdict(
        stages=compare_stages(sides),
        layers=sides.layers,
        names=sides.names,
        settings=remarks.settings(sides),
        changes=remarks.changes(sides),
        environment=remarks.environment(sides),
        precision=reference.plan.rounding_precision,
        compiled="pynative" not in modes,
        measured=bool(sides.rounding),
        ran={mode: len(layers) for mode, layers in port.layers.items()},
        rounding=sides.rounding,
    )


def beyond_rounding(result: Verdict) -> list[Difference]:
    """Return the arrays within their tolerance that rounding does not explain, worst first.

    There are none if the rounding is not known, or if it is that of float16.
    """
    if not result.rounding or result.precision != "float32":
        return []
    named = {rule.id for rule in RULES if rule.names_beyond}
    items = [item for stage in result.stages if stage.id in named for item in stage.differences]
    return sorted((item for item in items if item.beyond), key=lambda item: -item.beyond)
