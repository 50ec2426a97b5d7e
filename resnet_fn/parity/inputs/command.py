"""The command `parity inputs`, which compares how two sides prepare pictures."""

import argparse
import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from resnet_fn.config import cli
from resnet_fn.config.output_paths import file_to_write, folder_to_write
from resnet_fn.config.path_hints import near_path
from resnet_fn.config.wording import counted
from resnet_fn.parity.inputs import files, law, table
from resnet_fn.parity.inputs.comparing import InputsVerdict, Stage, compare_pictures
from resnet_fn.parity.inputs.labels import words_of_order
from resnet_fn.parity.inputs.lines import recorded_calls
from resnet_fn.parity.inputs.package_pixels import side_of_recipe
from resnet_fn.parity.inputs.pairing import Read, paired_by_pixels
from resnet_fn.parity.inputs.pictures import Picture, make_pictures, pictures_in
from resnet_fn.parity.inputs.reading import (
    FORMS,
    MOST_ORDERED,
    Sample,
    Side,
    read_or_error,
    side_of,
)
from resnet_fn.parity.inputs.result import Result
from resnet_fn.parity.trace.difference import DIFFERS
from resnet_fn.runtime.user_files import imports_beside, load_value

_EPILOG = f"""examples:
  python -m resnet_fn.parity inputs --reference torch_side.py:read --net ms_side.py:read
  python -m resnet_fn.parity inputs --reference torch_side.py:transforms --net ms_side.py:steps photos
  python -m resnet_fn.parity inputs --reference torch_side.py:read --recipe imagenet_resnet50_v1

FILE:FUNCTION is {FORMS}.

exit codes: 0 both prepare the same, 1 a difference or an error, 2 wrong usage, 3 something is
undecided and nothing differs
"""
_DEFAULTS = {"pictures": 64, "draws": law.DRAWS, "seed": 0}
_DUMP = "unsupported_image.*"  # MindSpore writes what it cannot decode into the working directory


def inputs(arguments: Sequence[str]) -> int:
    """Compare two sides' pictures, print the result, and return the exit code."""
    parsed = _parsed(arguments)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, _without_dumps():
        folder = parsed.folder or os.path.join(scratch, "pictures")
        pictures, origin = _pictures(parsed, folder)
        reference, port = _sides(parsed, folder, pictures)
        result = _compared(port, reference, pictures, parsed, scratch)
    result = dataclasses.replace(result, pictures=origin)
    print(origin)
    print(table.table(result))
    print(f"{counted(len(pictures), 'picture')}, {time.perf_counter() - began:.0f} s")
    if parsed.json:
        files.write_json(result, parsed.json)
    if parsed.report:
        print(f"report: {files.write_page(result, parsed.report)}")
    strict = parsed.strict and bool(result.verdict.settings)
    return result.verdict.code or int(strict)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    usage = "--reference FILE:FUNCTION --net FILE:FUNCTION [FOLDER]"
    description = "Compare how two sides prepare pictures for a net, picture by picture."
    parser = cli.Parser("parity inputs", description, _EPILOG, usage)
    parser.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="pictures; default twelve awkward ones"
    )
    group = parser.add_argument_group("what is compared")
    group.add_argument("--reference", metavar="FILE:FUNCTION", help="how PyTorch's side reads")
    group.add_argument("--net", metavar="FILE:FUNCTION", help="how the port's side reads")
    own = "this package's evaluation with this recipe, instead of --net or --reference"
    group.add_argument("--recipe", metavar="NAME", help=own)
    counts = {
        "pictures": "the most pictures of FOLDER that are read",
        "draws": "draws of random augmentation",
        "seed": "seed of a data loader's order",
    }
    for name, meaning in counts.items():
        text = f"{meaning}; default {_DEFAULTS[name]}"
        group.add_argument(f"--{name}", type=int, metavar="N", help=text)
    strict = "exit 1 also if settings differ that the pictures do not show"
    group.add_argument("--strict", action="store_true", help=strict)
    written = parser.add_argument_group("what is written")
    written.add_argument("--json", metavar="FILE", type=file_to_write, help="the result as JSON")
    page = "write inputs.html into this folder"
    written.add_argument("--report", metavar="DIR", type=folder_to_write, help=page)
    parsed = parser.parse(arguments)
    parsed.given = [name for name in counts if getattr(parsed, name) is not None]
    for name, default in _DEFAULTS.items():
        if name not in parsed.given:
            setattr(parsed, name, default)
    sides = [parsed.reference, parsed.net, parsed.recipe]
    several = parsed.reference and parsed.net and parsed.recipe
    cli.raise_usage_errors(
        (
            sum(map(bool, sides)) < 2,
            "--reference: two sides are compared; give --reference and --net, or one of them and "
            "--recipe",
        ),
        (several, "--recipe: both sides are given; leave out --recipe, --net or --reference"),
        (
            "pictures" in parsed.given and not parsed.folder,
            "--pictures: this is the number of FOLDER's pictures; give FOLDER, or leave it out",
        ),
        (parsed.pictures < 1, f"--pictures: {parsed.pictures} is too small; give 1 or more"),
        (parsed.draws < 2, f"--draws: {parsed.draws} is too small; give 2 or more"),
        (
            parsed.folder and not Path(parsed.folder).is_dir(),
            f"FOLDER: there is no folder {parsed.folder}; "
            f"{near_path(parsed.folder or '.', 'give a folder of pictures')}",
        ),
    )
    return parsed


def _pictures(parsed: argparse.Namespace, folder: str) -> tuple[list[Picture], str]:
    """Return the pictures, and in words where they are from."""
    if not parsed.folder:
        return make_pictures(folder), "twelve awkward pictures, made for this comparison"
    pictures, count = pictures_in(folder, parsed.pictures)
    if not pictures:
        raise ValueError(f"FOLDER: {folder} contains no pictures; give a folder of pictures")
    chosen = f"{len(pictures)} of {counted(count, 'picture')} in {folder}"
    return pictures, chosen


def _sides(
    parsed: argparse.Namespace, folder: str, pictures: Sequence[Picture]
) -> tuple[Side, Side]:
    """Return the reference's side and the port's."""
    sides = {}
    for flag in ("reference", "net"):
        location = getattr(parsed, flag)
        if not location:
            sides[flag] = side_of_recipe(parsed.recipe)
            continue
        value = load_value(location, f"--{flag}")
        if value is None:
            path, _, name = location.rpartition(":")
            raise cli.UsageError(f"--{flag}: {path} has no {name!r}; give a name of this file")
        with imports_beside(location):
            side = side_of(value, location, f"--{flag}", folder, pictures, parsed.seed)
        sides[flag] = _with_imports(side)
    return sides["reference"], sides["net"]


def _with_imports(side: Side) -> Side:
    """Return the side, which reads with the imports of its own file."""

    def read(picture: Picture) -> Sample:
        with imports_beside(side.place):
            return side.read(picture)

    return dataclasses.replace(side, read=read)


def _compared(
    port: Side,
    reference: Side,
    pictures: Sequence[Picture],
    parsed: argparse.Namespace,
    scratch: str,
) -> Result:
    """Compare both sides in values, or in law if they are random."""
    random = [law.is_random(side, pictures) for side in (port, reference)]
    samples = [
        {picture: read_or_error(side, picture) for picture in pictures}
        for side in (port, reference)
    ]
    for flag, side, read in (("--net", port, samples[0]), ("--reference", reference, samples[1])):
        errors = [sample for sample in read.values() if isinstance(sample, str)]
        if len(errors) == len(pictures):
            raise ValueError(
                f"{flag}: {side.place} reads no picture ({errors[0]}); correct the function, which "
                f"may be {FORMS}"
            )
    port_samples, reference_samples, order = _in_order(port, reference, samples[0], samples[1])
    verdict = compare_pictures(
        port_samples, reference_samples, made=not parsed.folder, random=any(random)
    )
    verdict = dataclasses.replace(verdict, order=order)
    notes = [
        f"{each_side.place}: {each_side.note}" for each_side in (port, reference) if each_side.note
    ]
    if "draws" in parsed.given and not any(random):
        notes.append("--draws: no effect, because no side is random")
    if "seed" in parsed.given and not (port.is_seeded or reference.is_seeded):
        notes.append("--seed: no effect, because no side is a data loader of PyTorch")
    result = Result(verdict, port.place, reference.place, "", notes=notes)
    if any(random):
        return _in_law(result, port, reference, random, scratch, parsed.draws)
    return dataclasses.replace(result, places=_places(reference, verdict))


def _in_order(
    port: Side, reference: Side, port_samples: Read, reference_samples: Read
) -> tuple[Read, Read, str]:
    """Return both sides' samples by picture, and a line about their order."""
    orders = [[*side.order[:MOST_ORDERED]] for side in (port, reference)]
    if port.is_guessed and (moved := paired_by_pixels(port_samples, reference_samples)):
        names = {id(sample): picture.name for picture, sample in moved.items()}
        orders[0] = [names[id(sample)] for sample in port_samples.values()][:MOST_ORDERED]
        port_samples = moved
    elif reference.is_guessed and (moved := paired_by_pixels(reference_samples, port_samples)):
        names = {id(sample): picture.name for picture, sample in moved.items()}
        orders[1] = [names[id(sample)] for sample in reference_samples.values()][:MOST_ORDERED]
        reference_samples = moved
    return port_samples, reference_samples, words_of_order(*orders)


def _in_law(
    result: Result,
    port: Side,
    reference: Side,
    random: Sequence[bool],
    scratch: str,
    draws: int,
) -> Result:
    """Return the result for random sides, with the comparison of the augmentation in law."""
    if all(random) or port.is_read_once or reference.is_read_once:
        folder = Path(scratch, "law")
        folder.mkdir()
        compared = law.compare_laws(port, reference, str(folder), draws)
    else:
        who = ("the port", "the reference") if random[0] else ("the reference", "the port")
        message = f"random in {who[0]}, the same in each draw of {who[1]}"
        compared = law.Law(DIFFERS, words=message)
    stage = Stage("augmentation", len(compared.results), compared.verdict, compared.words)
    stages = [*result.verdict.stages, stage]
    verdict = dataclasses.replace(result.verdict, stages=stages)
    return dataclasses.replace(result, verdict=verdict, law=compared)


def _places(reference: Side, verdict: InputsVerdict) -> dict[str, str]:
    """Return the lines of the reference's code that make the calls of Pillow and torchvision."""
    first = verdict.first_picture
    shown = [cause for cause in verdict.causes if cause.picture]
    if first is None:
        return {}
    names = [first.picture.name, *(cause.picture for cause in shown)]
    pictures = [result.picture for result in verdict.pictures if result.picture.name in names]
    places: dict[str, str] = {}
    for picture in pictures:
        with contextlib.suppress(Exception), recorded_calls() as calls:
            reference.read(picture)
            places = {**calls, **places}
    return places


@contextlib.contextmanager
def _without_dumps() -> Iterator[None]:
    """Remove the files that MindSpore writes into the working directory in a `with` block."""
    before = {*Path().glob(_DUMP)}
    try:
        yield
    finally:
        for path in {*Path().glob(_DUMP)} - before:
            path.unlink(missing_ok=True)
