"""The acceptance kit's report as Markdown."""

from collections.abc import Mapping
from typing import Any

from resnet_fn.doctor.findings import Finding
from resnet_fn.doctor.machine import lines

_NOTE = """What is allowed is the same on a CPU and on a card: there float32 is computed in float32 (no HF32), by
kernels and collectives that repeat. Each check ran its commands in work/NAME, which is deleted where it is ok."""


def page(result: Mapping[str, Any]) -> str:
    """What `accept` found, for a reader."""
    rows, details = [], []
    for check in result["checks"]:
        verdict = Finding(check["name"], check["ok"], check["found"], check["means"]).verdict
        rows.append(f"| {check['name']} | {verdict} | {_cell(check['found'])} | {check['seconds']:.0f} |")
        typed = "\n".join(f"    {command}" for command in check["commands"])
        details.append(
            f"### {check['name']}: {verdict}\n\nMeans: {check['means']}.\nJudged: {check['judged']}.\n"
            f"Output: logs/{check['name']}.log, of\n\n{typed or '    nothing'}\n"
        )
    machine = "\n".join(f"    {text}" for text in lines(result["machine"]))
    head = "| check | verdict | found | seconds |\n|---|---|---|---|"
    return "\n".join(
        [
            "# Acceptance",
            "",
            summary(result),
            "",
            machine,
            "",
            head,
            *rows,
            "",
            _NOTE,
            "",
            "## Each check",
            "",
            *details,
        ]
    )


def summary(result: Mapping[str, Any]) -> str:
    """One line: how many checks are ok, and which are not."""
    count = len(result["checks"])
    good = count - len(result["broken"]) - len(result["not_tried"])
    rest = [
        f"; {words}: {', '.join(result[key])}"
        for key, words in (("broken", "BROKEN"), ("not_tried", "not tried"))
        if result[key]
    ]
    return f"{good} of {count} ok, in {result['seconds']:.0f} s{''.join(rest)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
