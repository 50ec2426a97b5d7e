"""Every command in *.md and docs/*.md is run, as it is written, in order, in one empty folder for
each page.

A page is a script of its ```bash and ```python blocks; its ```toml and ```csv blocks are files. How
it may differ from what is written:

- `python -m resnet_fn.train`, `resnet_fn.launch` and the train scripts get `SHORT` appended, so
  that a page takes seconds: it may use any net and any number of epochs, and compiles nothing.
  `msrun` gets a free `--master_port`.
- In Python, `epochs=N` is `epochs=1`.
- Lines that begin with `pip install`, `tensorboard`, `git` or `.ci/run`, or that hold `pytest`, are
  not run; extras that `pip install` names must exist.
- Lines that compare with PyTorch are not run where it is not installed.
- A line `<!-- run: no (reason) -->` right above a block: it is not run, but each of its flags must
  exist.
- A line `<!-- run: file NAME -->` right above a block: its text is written to NAME, which later
  commands use.
- A line `<!-- run: on FOLDER -->` right above a block: FOLDER is made first, a few photographs as
  an image folder, and `SMALL` goes to its train commands in place of `SHORT`.
- A line `<!-- run: instead COMMAND -->` right above a block: COMMAND is run in its place, for what
  takes too long.
- A line `<!-- run: exits CODE -->` right above a block: its last command ends with this exit code.
  If a ```text block follows, its lines are among those that are printed, numbers to a hundredth of
  their size.
"""

import configparser
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from resnet_fn.runtime.msrun import claim_port

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
# a newcomer's; the others' commands run before a release
FIRST_PAGES = (
    "README.md",
    "quickstart.md",
    "parity.md",
    "inputs.md",
)
# compiling takes most of a run
SHORT = "--model resnet8 --epochs 1 --image-size 8 --batch-size 240 --mode pynative"
SMALL = f"{SHORT} --image-size 16 --eval-size 0 --eval-resize 0 --batch-size 8 --warmup-epochs 0"
_BLOCK = re.compile(
    r"(?:^<!-- *run: *(.*?) *-->\n)?^```(bash|sh|python|toml|csv)\n(.*?)^```", re.M | re.S
)
_NOT_RUN = re.compile(r"^(pip install|tensorboard|git|\.ci/run)\b|\bpytest\b")
# A program that has flags of its own, and a help.
_PROGRAM = (
    r"scripts/benchmark [\w-]+|resnet_fn(?:\.parity (?:record|replay|compare|inputs|self)|[.\w]*)"
)
_TRAIN = re.compile(
    r"^(?!#).*(resnet_fn\.(train|launch)\b(?!.* -- python)|run_(standalone|distribute)_train\.sh)"
)


def blocks(page):
    yield from _BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(text):
    """The lines of a block, continued ones joined."""
    return text.replace("\\\n", " ").splitlines()


def needs_torch(line):
    return "resnet_fn.parity" in line and not importlib.util.find_spec("torch")


PHOTOGRAPHS = """
import numpy as np, os, sys
from PIL import Image
for half, name, count in (("train", "bee", 9), ("train", "cat", 9), ("val", "bee", 3), ("val", "cat", 3)):
    folder = os.path.join(sys.argv[1], half, name)
    os.makedirs(folder, exist_ok=True)
    for k in range(count):
        Image.fromarray(np.random.default_rng(k).integers(0, 256, (40, 60, 3), np.uint8)).save(f"{folder}/{k}.JPEG")
"""


def not_run(line):
    return f": {shlex.quote('not run: ' + line)}"


def shorten(line, flags=SHORT):
    if _NOT_RUN.search(line) or needs_torch(line):
        return not_run(line)
    parts = []
    for part in line.split(" && "):
        if _NOT_RUN.search(part):
            continue
        if _TRAIN.search(part) and "--help" not in part:
            command, hash_, comment = part.partition("  #")
            part = f"{command.rstrip()} {flags}{hash_}{comment}"
        if part.startswith("msrun "):
            part = f"msrun --master_port {claim_port('127.0.0.1', 0)} {part.removeprefix('msrun ')}"
        parts.append(part)
    return " && ".join(parts)


def script(page):
    lines = ["set -euo pipefail"]
    for number, (rule, language, text) in enumerate(blocks(page)):
        kind, _, value = rule.partition(" ")
        if kind == "no":
            continue
        text = re.sub(r"\bepochs=\d+", "epochs=1", text)
        if kind == "file":
            lines.append(f"cat > {value} <<'END'\n{text}END")
        elif language in ("toml", "csv"):
            raise AssertionError(
                f"{page.name}: a {language} block needs a line <!-- run: file NAME -->"
            )
        elif kind == "on":
            lines.append(f"python -c {shlex.quote(PHOTOGRAPHS)} {value}")
            lines += [shorten(line, SMALL) for line in commands(text)]
        elif kind == "exits":
            *before, last = [shorten(line) for line in commands(text)]
            if not last.startswith(": "):
                last = f"if {last}; then exit 9; else [ $? -eq {value} ]; fi"
            lines += [*before, last]
        elif kind == "instead":
            lines.append(not_run(value) if needs_torch(value) else value)
        elif language == "python":
            name = f"block{number}.py"
            lines.append(f"cat > {name} <<'END'\n{text}END\npython {name}; rm {name}")
        else:
            lines += [shorten(line) for line in commands(text)]
    return "\n".join(lines) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.release] * (page.name not in FIRST_PAGES))
        for page in PAGES
    ],
    ids=lambda page: page.name,
)
def test_every_command_of_a_page_runs(page):
    if page.name == "SKILL.md":
        pytest.importorskip("torch", reason="reads what the ladder wrote")
    for folder in ("scripts", "resnet_fn", "docs"):
        os.symlink(ROOT / folder, folder)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    text = script(page)
    done = subprocess.run(
        ["bash", "-xc", text],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, f"{page.name}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    if importlib.util.find_spec("torch"):
        printed = done.stdout.splitlines()
        for line in lines_below_exits(page.read_text(encoding="utf-8")):
            assert any(same_words(line, other) for other in printed), (
                f"{page.name}: not printed: {line}"
            )


def test_no_two_pages_train_into_one_folder():
    """A reader types several pages in one folder, and another recipe's run would be resumed."""
    pages_of: dict[str, set[str]] = {}
    for page in PAGES:
        for block in blocks(page):
            for folder in re.findall(r'(?:--out-dir |out_dir=")([\w./-]+)', block[2]):
                pages_of.setdefault(folder, set()).add(page.name)
    assert len(pages_of) > 20
    assert not {folder: pages for folder, pages in pages_of.items() if len(pages) > 1}


def lines_below_exits(text):
    """The lines of the ```text blocks that show what commands with another exit code than 0
    print.
    """
    for section in text.split("<!-- run: exits ")[1:]:
        shown = re.search(r"^```text\n(.*?)^```", section.partition("\n## ")[0], re.M | re.S)
        yield from shown[1].splitlines() if shown else ()


def same_words(line, printed):
    """Whether both are the same words, numbers with a point to a hundredth of their size."""
    number = r"-?\d+\.\d+(?:e[+-]\d+)?"
    if re.sub(number, "#", line) != re.sub(number, "#", printed):
        return False
    return all(
        float(a) == pytest.approx(float(b), rel=1e-2)
        for a, b in zip(re.findall(number, line), re.findall(number, printed), strict=True)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_markers_of_pages_have_a_known_form(page):
    text = page.read_text(encoding="utf-8")
    for rule, _, _ in blocks(page):
        assert re.fullmatch(r"|no \(.+\)|file \S+|on \S+|exits \d|instead .+", rule), (
            f"{page.name}: run: {rule}"
        )
    assert text.count("<!-- run:") == sum(bool(rule) for rule, _, _ in blocks(page)), (
        f"{page.name}: a stray marker"
    )


def test_every_command_and_script_runs_on_a_page():
    from resnet_fn.__main__ import COMMANDS

    run = "\n".join(
        line for page in PAGES for line in script(page).splitlines() if not line.startswith(": ")
    )
    for name in COMMANDS:
        assert re.search(rf"\bresnet_fn\.{name}\b", run) or name == "parity", name
    for path in (ROOT / "scripts").glob("run_*.sh"):
        assert path.name in run, path.name


def commands_that_are_not_run(page):
    """(program, the words after it) in blocks with a marker and between words; a benchmark's part
    is a program.
    """
    text = page.read_text(encoding="utf-8")
    yield from re.findall(
        rf"`python (?:-m )?({_PROGRAM})([^`]*)`",
        re.sub(r"^```.*?^```", "", text, flags=re.S | re.M),
    )
    for rule, _, block in blocks(page):
        for line in commands(block) if rule else ():
            line = re.sub(
                r"(resnet_fn\.launch\b.*) -- (?!python)", r"\1 python -m resnet_fn.train ", line
            )
            yield from re.findall(rf"python (?:-m )?({_PROGRAM})((?:(?!python -m)[^|;&#])*)", line)


def test_commands_and_flags_on_the_pages_exist(python):
    used = {}
    for page in PAGES:
        for program, words in commands_that_are_not_run(page):
            used.setdefault(program, set()).update(re.findall(r"(?<=\s)--(?:no-)?([\w-]+)", words))
    for program, flags in used.items():
        name, *more = program.split()
        words = [ROOT / name] if "/" in name else ["-m", name]
        shown = python(
            *words, *more, "--help-all" if program == "resnet_fn.train" else "--help"
        ).stdout
        assert not [flag for flag in flags if not re.search(rf"--(\[no-\])?{flag}\b", shown)], (
            program
        )
    for page in PAGES:
        for name in re.findall(r"`(scripts/[\w.]+)", page.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_extras_that_pages_name_exist():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = set(setup["options.extras_require"])
    for page in PAGES:
        for named in re.findall(r"(?:resnet_fn|\.)\[([\w,]+)\]", page.read_text(encoding="utf-8")):
            assert set(named.split(",")) <= extras, f"{page.name}: {named}"


def test_no_text_installs_the_package_by_name():
    """It is on no index, where its name is free for anybody."""
    for path in [*PAGES, *(ROOT / "resnet_fn").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        assert not re.search(
            r"pip install [^`\n&;]*\bresnet_fn\b", path.read_text(encoding="utf-8")
        ), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            path = page.parent / name if name else page
            assert path.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors_of(path), f"{page.name}: {target}"


def anchors_of(page):
    """A page's headings as its links name them."""
    words = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    return {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^#+ (.+)", words, re.M)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_that_pages_name_exists(page):
    """`room/module`, `room/module.name`: the file is there, and the name in it."""
    package = ROOT / "resnet_fn"
    for words in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
        named = re.fullmatch(r"(\w+(?:/\w+)+)(?:\.py)?((?:\.\w+)*)", words)
        if named and (package / named[1].partition("/")[0]).is_dir():
            path = package / f"{named[1]}.py"
            assert path.exists() or (package / named[1]).is_dir(), f"{page.name}: {words}"
            for name in filter(None, named[2].removeprefix(".py").split(".")):
                assert re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")), (
                    f"{page.name}: {words}"
                )


def test_every_field_of_the_log_is_documented():
    from resnet_fn.telemetry.board import SCALARS

    text = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")
    for event, fields in SCALARS.items():
        assert f'"event": "{event}"' in text, event
        for field in fields:
            assert f"`{field}`" in text, f"{event}: {field}"


def named_tests(text):
    """The tests that a text names: (file, beginning of the name or None); `…test_x` is in the file
    named before it.
    """
    file = ""
    for words in re.findall(r"`([^`\n]+)`", text):
        named = re.fullmatch(r"([\w/]*test_\w+\.py)(?:::(\w+)…?)?|…(test_\w+)…?", words)
        if named:
            file = named[1] or file
            yield file, named[2] or named[3]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_pages_name_exist(page):
    for file, name in named_tests(page.read_text(encoding="utf-8")):
        places = [path for path in (ROOT / "tests").rglob("*.py") if str(path).endswith(f"/{file}")]
        beginning = f"\ndef {name or ''}"
        assert any(beginning in path.read_text() for path in places), f"{page.name}: {file} {name}"
