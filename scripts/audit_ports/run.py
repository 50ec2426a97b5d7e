"""The ladder on ports of mindone, each verdict beside that of an independent check: the table of docs/audit.md.

scripts/audit_ports/install.sh VENV, then VENV/bin/python scripts/audit_ports/run.py [NET …]. MindSpore's mint has few
kernels on a CPU: `mint_cpu` stands in for it, and the ladder runs with `--mode pynative`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from nets import NETS


def ladder_of(name, optimizer):
    """The ladder of one net over three updates."""
    import adapter

    from resnet_fn import recipes
    from resnet_fn.parity.flags import ladder_recipe
    from resnet_fn.parity.replay import compare_step
    from resnet_fn.runtime import process

    process.start("CPU")
    net, module = adapter.build(name)
    recipe = ladder_recipe(recipes.recipe("digits"), 8, None, {"optimizer": optimizer})
    batches, losses = adapter.inputs_of(name), {"reference_loss": adapter.loss, "loss": adapter.loss}
    return compare_step(net, module, batches, recipe, mode="pynative", **losses)


def run_one(name, folder, optimizer):
    """Write a net's row, and the ladder's output, into a folder."""
    began = time.perf_counter()
    row, text = {}, ""
    try:
        from resnet_fn.parity.report import name_map, table

        ladder = ladder_of(name, optimizer)
        text = f"{name_map(ladder)}\n{table(ladder)}\n"
        row = summary(ladder)
    except Exception as error:
        text = traceback.format_exc()
        row = {"verdict": "failed", "words": f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"}
    row["seconds"] = time.perf_counter() - began
    (folder / f"{name}.txt").write_text(text)
    import check

    try:
        wrong = [*check.check(name), *check.check_initial(name)]
        row["wrong"] = [*wrong[:3], *([f"and {len(wrong) - 3} more"] if len(wrong) > 3 else ())]
    except Exception as error:
        row["wrong"] = [f"it fails: {type(error).__name__}: {str(error).strip().splitlines()[0]}"]
    (folder / f"{name}.json").write_text(json.dumps(row))


def summary(ladder):
    """Verdict, place and cause of a ladder: what differs first, with the reference's weights if anything does then."""
    first = ladder.first_computed or ladder.first_stage
    verdict = "differs" if first else "undecided" if ladder.undecided else "same"
    words = [f"{first.name}: {'; '.join(first.hints[:2]) or first.failed or first.first.name}"] if first else []
    words += [f"`{ladder.first_layer.name}` {'; '.join(ladder.first_layer.hints[:1])}"] if ladder.first_layer else []
    words += [f"{one.name}: {one.doubt}" for one in ladder.undecided[:1]] if not first else []
    return {"verdict": verdict, "words": ", ".join(words)}


def print_faults():
    """The table of what is wrong where, each with what the check finds before and after it is put right."""
    import check

    print("| net | in mindone/transformers/models | the check finds | put right |\n|---|---|---|---|")
    for name, (place, words, how, changes) in check.FAULTS.items():
        model, line = place.split(":")
        before, after = ((found or ["nothing"])[0] for found in (check.check(name), check.check(name, **changes)))
        cells = (f"`{name}`", f"`{model}/modeling_{model}.py:{line}`: {words}", before, how and f"{how}: {after}")
        print(f"| {' | '.join(cells)} |", flush=True)


def table(rows):
    """The Markdown table of {name: row}."""
    head = ("net", "verdict", "true?", "seconds", "what the ladder prints")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, row in rows.items():
        wrong = "; ".join(row["wrong"][:1])
        true = (row["verdict"] == "same") == (not wrong) and row["verdict"] not in ("undecided", "failed")
        check = f"{'yes' if true else 'no'}, {f'the check finds {wrong}' if wrong else 'it is right'}"
        cells = (name, row["verdict"], check, f"{row['seconds']:.0f}", row["words"])
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NET", help=f"default all of: {', '.join(NETS)}")
    parser.add_argument("--keep", metavar="FOLDER", help="keep each net's result here; what is there is not run again")
    parser.add_argument("--optimizer", default="adamw", help="default adamw")
    parser.add_argument("--faults", action="store_true", help="prove each fault of mindone by putting it right")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.faults:
        return print_faults()
    names = options.names or list(NETS)
    if unknown := [name for name in names if name not in NETS]:
        parser.error(f"{unknown[0]} is not among {', '.join(NETS)}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(options.keep or place).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if options.one:
            return run_one(names[0], folder, options.optimizer)
        for name in [one for one in names if not (folder / f"{one}.json").exists()]:
            command = [sys.executable, __file__, name, "--one", "--keep", str(folder), "--optimizer", options.optimizer]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            done = (folder / f"{name}.json").exists()
            print(f"{name}: {'done' if done else ended.stderr.strip().splitlines()[-1]}", file=sys.stderr, flush=True)
        files = {name: folder / f"{name}.json" for name in names}
        print(table({name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}))


if __name__ == "__main__":
    main()
