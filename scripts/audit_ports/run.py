"""The ladder on ports of mindone, each verdict beside that of an independent check: the table of
docs/audit.md.

scripts/audit_ports/install.sh VENV, then VENV/bin/python scripts/audit_ports/run.py [NET …].
MindSpore's mint has few kernels on a CPU: `mint_cpu` stands in for it, and the ladder runs with
`--mode pynative`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from whole_nets import WHERE as WHERE_OF_WHOLE
from whole_nets import WHOLE_NETS

from nets import MAPS, NETS, WHERE

_MOST = 900  # seconds for the ladder and the check of a net
_FAILS = "it fails: "


def ladder_of(name, folder):
    """Compare one net with its original, stage by stage, in three updates of AdamW."""
    import adapter

    from resnet_fn import recipes
    from resnet_fn.parity.pair.map_file import read_map
    from resnet_fn.parity.replay import compare_step
    from resnet_fn.parity.tasks import ladder_recipe
    from resnet_fn.runtime import process

    process.start("CPU")
    net, module = adapter.build(name)
    batches = adapter.inputs_of(name)
    samples = len(batches[0][1])
    recipe = ladder_recipe(recipes.recipe("digits"), samples, None, {"optimizer": "adamw"})
    names = folder / f"{name}.map.json"
    names.write_text(json.dumps(MAPS.get(name, {})))
    options = {
        "reference_loss": adapter.loss,
        "loss": adapter.loss,
        "corrections": read_map(str(names)),
    }
    return compare_step(net, module, batches, recipe, mode="pynative", **options)


def run_one(name, folder):
    """Write a net's row, and the ladder's output, into a folder."""
    began = time.process_time()
    try:
        from resnet_fn.parity.show.table import name_map, table

        ladder = ladder_of(name, folder)
        text = f"{name_map(ladder)}\n{table(ladder)}\n"
        row = summary(ladder)
    except Exception as error:
        text = traceback.format_exc()
        row = {"verdict": "failed", "words": _line(error)}
    row["seconds"] = time.process_time() - began
    (folder / f"{name}.txt").write_text(text)
    import check

    for key, function in (("computes", check.check), ("begins", check.check_initial)):
        try:
            row[key] = function(name)
        except Exception as error:
            row[key] = [f"{_FAILS}{_line(error)}"]
    (folder / f"{name}.json").write_text(json.dumps(row))


def _line(error):
    return (
        f"{type(error).__name__}: "
        f"{next((one for one in str(error).splitlines() if one.strip('- ')), '')}"
    )


def summary(ladder):
    """Verdict, place and cause of a ladder: what differs with the reference's weights, and what the
    net begins with.
    """
    from resnet_fn.parity.show.titles import doubt_of, title_of, title_of_stage

    computed = ladder.first_computed
    began = [
        stage
        for stage in ladder.stages
        if stage.verdict == "DIFFERS" and stage.id.name == "initialisation"
    ]
    kinds = ["differs"] * bool(computed) + ["begins otherwise"] * bool(began)
    words = [
        f"{title_of_stage(one)}: {'; '.join(one.hints[:1]) or one.failed or title_of(one.first.id)}"
        for one in began
    ]
    if computed:
        words = [
            f"{title_of_stage(computed)}: "
            f"{'; '.join(computed.hints[:2]) or computed.failed or title_of(computed.first.id)}"
        ]
        layer = ladder.first_layer
        words += [f"`{layer.name}` {'; '.join(layer.hints[:1])}"] if layer else []
    if ladder.undecided and not kinds:
        kinds, words = (
            ["undecided"],
            [f"{title_of_stage(one)}: {doubt_of(one)}" for one in ladder.undecided[:1]],
        )
    return {"verdict": ", ".join(kinds) or "same", "words": ", ".join(words)}


def is_true(row):
    """Whether a verdict is that of the check: of what is computed, and of what a net begins with.

    An undecided one accuses nobody: it is true of a correct net.
    """
    if row["verdict"] == "failed":  # rightly, if the net itself fails, of the same
        return any(
            one.startswith(_FAILS) and one.removeprefix(_FAILS) in row["words"]
            for one in row["computes"]
        )
    if row["words"].startswith("weights: "):  # without all weights nothing else is compared
        return bool(row["computes"])
    kinds = row["verdict"].split(", ")
    wrong = [
        kind for kind, key in (("differs", "computes"), ("begins otherwise", "begins")) if row[key]
    ]
    return kinds == (wrong or ["same"]) or (kinds == ["undecided"] and not wrong)


def print_faults(names):
    """The table of what is wrong where, each with what the check finds before and after it is put
    right.
    """
    import check

    print("| net | in mindone | the check finds | put right |\n|---|---|---|---|")
    for name in names or check.FAULTS:
        words, how, _ = check.FAULTS[name]
        found = []
        # in processes of their own: what fails in one shows in what follows
        for right in ((), ("right",)):
            command = [sys.executable, check.__file__, name, *right]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            output = ended.stderr if ended.returncode else ended.stdout
            found.append(f"{_FAILS * bool(ended.returncode)}{output.strip().splitlines()[-1]}")
        print(
            f"| `{name}` | `{WHERE[name][0]}`: {words} | {found[0]} | {how}: {found[1]} |",
            flush=True,
        )


def table(rows):
    """The Markdown table of {name: row}."""
    head = (
        "net",
        "verdict",
        "true?",
        "the check finds",
        "where",
        "seconds",
        "what the ladder prints",
    )
    places = {**WHERE, **WHERE_OF_WHOLE}
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, row in rows.items():
        where = ", ".join(f"`{place}`" for place in places.get(name, ()))
        found = [*row["computes"][:1], *row["begins"][:1]]
        found = "; ".join(dict.fromkeys(found)) or "nothing"
        cells = (f"`{name}`", row["verdict"], "yes" if is_true(row) else "**no**", found, where)
        cells = [cell.replace("|", "/") for cell in (*cells, f"{row['seconds']:.0f}", row["words"])]
        lines.append(
            f"| {' | '.join(cell if len(cell) < 130 else f'{cell[:130]}…' for cell in cells)} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NET", help=f"default all of: {', '.join(NETS)}"
    )
    parser.add_argument(
        "--keep",
        metavar="FOLDER",
        help="keep each net's result here; what is there is not run again",
    )
    parser.add_argument(
        "--faults", action="store_true", help="prove each fault of mindone by putting it right"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.faults:
        return print_faults(options.names)
    names = options.names or [*NETS, *WHOLE_NETS]
    if unknown := [name for name in names if name not in (*NETS, *WHOLE_NETS)]:
        parser.error(f"{unknown[0]} is not among {', '.join((*NETS, *WHOLE_NETS))}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(options.keep or place).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if options.one:
            return run_one(names[0], folder)
        for name in [one for one in names if not (folder / f"{one}.json").exists()]:
            command = [sys.executable, __file__, name, "--one", "--keep", str(folder)]
            try:
                ended = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=_MOST
                )
                words = (
                    "done"
                    if (folder / f"{name}.json").exists()
                    else ended.stderr.strip().splitlines()[-1]
                )
            except subprocess.TimeoutExpired:
                words = f"stopped after {_MOST} s"
            print(f"{name}: {words}", file=sys.stderr, flush=True)
        files = {name: folder / f"{name}.json" for name in names}
        rows = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
        print(table(rows))
    return len(rows) < len(names) or not all(map(is_true, rows.values()))


if __name__ == "__main__":
    sys.exit(main())
