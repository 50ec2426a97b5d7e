"""Try mutants of one net in this process; one JSON line for each goes to stdout."""

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

NETS = Path(__file__).parent / "nets"
ORIGINAL = "original"  # the name of the port without a change


def source_of(net: str) -> str:
    """Return the source of a net's port."""
    return (NETS / net / "port.py").read_text(encoding="utf-8")


def load(path: Path, name: str) -> ModuleType:
    """Import a file as a module of this name."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # MindSpore's compiler looks a function's module up
    spec.loader.exec_module(module)
    return module


def work(net: str, chosen: Sequence[dict[str, str]]) -> None:
    """Try mutants of a net. A truth that is known is not decided again."""
    from answer import ACCEPTED, answer_of, record_reference
    from mutants import mutants_of
    from resnet_fn.runtime import process
    from truth import Trial

    process.start("CPU", 1)
    task, reference, port = (
        load(NETS / net / f"{name}.py", f"{net}_{name}") for name in ("task", "reference", "port")
    )
    recorded = record_reference(task, reference)
    original = answer_of(recorded, port)
    _tell(net, ORIGINAL, answer=original.verdict, where=original.where)
    if original.verdict != ACCEPTED:
        return
    trial = None if all(one["truth"] for one in chosen) else Trial(task, port)
    by_name = {one.name: one for one in mutants_of(source_of(net))}
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    for number, asked in enumerate(chosen):
        mutant = by_name[asked["name"]]
        print(json.dumps({"net": net, "starts": mutant.name}), flush=True)
        place = folder / f"{net}_{number}" / "port.py"
        place.parent.mkdir()
        place.write_text(mutant.source, encoding="utf-8")
        began = time.perf_counter()
        truth, why, changed = asked["truth"], asked["why"], None
        try:
            changed = load(place, f"{net}_{number}")
        except Exception as error:
            truth, why = "fails", f"import: {error}"
        if trial is not None and not truth:
            truth, why = trial.decide(changed)
        decided = time.perf_counter()
        facts = {"kind": mutant.kind, "truth": truth, "why": why}
        if truth != "fails":
            facts |= _answered(answer_of(recorded, changed), original, mutant, port)
        seconds = [round(decided - began, 1), round(time.perf_counter() - decided, 1)]
        _tell(net, mutant.name, **facts, seconds=seconds)


def _answered(answer: Any, original: Any, mutant: Any, port: ModuleType) -> dict[str, Any]:
    """Return the ladder's answer on a mutant, and the lines that the original does not have."""
    from answer import ACCEPTED, DIFFERS, NAMED, named, new_lines

    verdict, lines = answer.verdict, []
    if verdict == ACCEPTED:
        lines = named(answer, original, mutant, port.build())
        verdict = NAMED if lines else ACCEPTED
    more = [] if verdict == DIFFERS else new_lines(answer, original)
    return {"answer": verdict, "where": answer.where, "named": lines, "new": more}


def _tell(net: str, name: str, **facts: object) -> None:
    print(json.dumps({"net": net, "name": name, **facts}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    work(asked["net"], asked["mutants"])
