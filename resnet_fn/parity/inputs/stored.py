"""Read the JSON file of `parity inputs` for the ladder, without the rest of this folder."""

from pathlib import Path

from resnet_fn.config.cli import UsageError
from resnet_fn.config.reading import read_json

FORMAT, VERSION = "resnet_fn parity inputs", 1  # docs/inputs.md describes it


def line_of(path: str) -> str:
    """Return the ladder's line about a JSON file that `parity inputs` wrote.

    Raises UsageError if the file is another one.
    """
    fix = "give the file that parity inputs wrote with --json"
    if not Path(path).is_file():
        raise UsageError(f"--inputs-verdict: there is no file {path}; {fix}")
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"--inputs-verdict: {path} cannot be read ({error}); {fix}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UsageError(f"--inputs-verdict: {path} is not a verdict of inputs; {fix}")
    if content.get("version") != VERSION:
        version = content.get("version")
        raise UsageError(
            f"--inputs-verdict: {path} has version {version}, but {VERSION} is read; write it again"
        )
    sides = f"{content.get('port')} against {content.get('reference')}"
    left = content.get("not_compared")
    more = f"; not compared: {', '.join(map(str, left))}" if isinstance(left, list) and left else ""
    return f"inputs: compared by parity inputs ({sides}): {content.get('verdict')}{more}"
