"""The pytest plugin: writes what each test's comparisons and commands answer, under the test's id.

One file for each answer, in the order in which they were given: {"comparison": the JSON of --json},
{"command": its arguments, exit code, text and JSON}, {"error": its text}, or {"recording": each
array's dtype, shape and hash}. Commands that a test starts as processes write theirs, too.

Variables: GOLDEN, the folder; GOLDEN_KINDS, "answers" (the default) or "recordings"; GOLDEN_TEST,
an id where no test runs.
"""

import contextlib
import functools
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from golden_answers import hooks

SECONDS = 600.0  # the longest time of a search, which otherwise ends by the clock
TEST_FILE = "test"  # in the folder of a test: its id
_SCRIPTS = str(Path(__file__).resolve().parents[1])
_CHILD = "import sys\nif '-m' in sys.orig_argv:\n    from golden_answers import plugin\n"
_TMP = re.compile(
    re.escape(tempfile.gettempdir()) + r"/(pytest-of-[^/\s]+/pytest-\d+(/popen-gw\d+)?|tmp\w+)"
)


def pytest_configure(config: Any) -> None:
    """Take the answers of this process, and of the processes that its tests start."""
    one_thread()
    take_answers()
    beside = Path(os.environ["GOLDEN"], "sitecustomize")
    beside.mkdir(parents=True, exist_ok=True)
    (beside / "sitecustomize.py").write_text(f"{_CHILD}    plugin.take_answers()\n")
    paths = [str(beside), _SCRIPTS, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def pytest_runtest_setup(item: Any) -> None:
    """Begin MindSpore's random numbers anew, so that a test draws the same without those before."""
    if "mindspore" in sys.modules:
        sys.modules["mindspore"].set_seed(1)


def one_thread() -> None:
    """Keep this process to one CPU: with several, the last bits depend on how work is divided."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if "PYTEST_XDIST_WORKER" not in os.environ:  # tests/conftest.py gives each of these one
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[os.getpid() % len(cpus)]})


def take_answers() -> None:
    """Replace functions of the checkout by functions that also write what they return."""
    if os.environ.get("GOLDEN_KINDS") == "recordings":
        hooks.install(
            {"recording": functools.partial(_written_once, to_answer=_answer_of_recording)}
        )
        return
    hooks.install(
        {
            "comparison": functools.partial(_written_once, to_answer=answer_of_comparison),
            "search": _with_time,
            "command": _command,
            "process": _process,
        }
    )


def _with_time(searcher: Any) -> Any:
    searcher.__init__.__defaults__ = (SECONDS,)
    return searcher


def answer_of_comparison(result: Any) -> dict[str, Any]:
    """Return the JSON of a comparison's result."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        hooks.function_of("json")(result, file.name)
        return {"comparison": json.loads(Path(file.name).read_text())}


def _answer_of_recording(recording: Any) -> dict[str, Any]:
    from golden_answers.recordings import numbers_of  # imports NumPy, which commands may do without

    return {"recording": numbers_of(recording)}


def _answer_of_error(error: Exception) -> dict[str, Any]:
    return {"error": f"{type(error).__name__}: {error}"}


_last: list[Any] = [None]  # the result, or the error, that was written last


def write_once(result: Any, to_answer: Callable[[Any], dict[str, Any]]) -> None:
    """Write a result or an error, unless it was the last that was written."""
    if result is not _last[0]:
        write(to_answer(result))
    _last[0] = result


def _written_once(
    function: Callable[..., Any], to_answer: Callable[[Any], dict[str, Any]]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def call_and_write(*arguments: Any, **keywords: Any) -> Any:
        try:
            result = function(*arguments, **keywords)
        except Exception as error:
            write_once(error, _answer_of_error)
            raise
        write_once(result, to_answer)
        return result

    return call_and_write


def _command(main: Callable[[Sequence[str]], int]) -> Callable[[Sequence[str]], int]:
    @functools.wraps(main)
    def run_and_write(arguments: Sequence[str]) -> int:
        with _told(arguments) as answer:
            answer["exit"] = main(arguments)
        return answer["exit"]

    return run_and_write


def _process(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_and_write(command: str, *arguments: Any, **keywords: Any) -> Any:
        if not command.startswith("parity"):
            return run(command, *arguments, **keywords)
        with _told(sys.argv[1:]):
            return run(command, *arguments, **keywords)

    return run_and_write


_running: list[Any] = []


@contextlib.contextmanager
def _told(arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Write the command of a block: its exit code or error, what it prints, and its JSON."""
    answer: dict[str, Any] = {"arguments": list(map(str, arguments))}
    if _running:  # a process runs the command
        yield answer
        return
    _running.append(answer)
    out, err = _Copied(sys.stdout), _Copied(sys.stderr)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield answer
    except SystemExit as error:
        answer["exit"] = error.code
        raise
    except Exception as error:
        answer |= _answer_of_error(error)
        raise
    finally:
        _running.clear()
        answer["printed"], answer["errors"] = out.copy.splitlines(), err.copy.splitlines()
        file = _json_of(answer["arguments"])
        if file and Path(file).is_file():
            answer["json"] = json.loads(Path(file).read_text())
        write({"command": answer})


def _json_of(arguments: Sequence[str]) -> str:
    after = dict(zip(arguments, [*arguments[1:], ""], strict=True))
    return after.get("--json", "")


class _Copied:
    """A stream that also keeps what is written."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.copy = stream, ""

    def write(self, text: str) -> int:
        """Write a text."""
        self.copy += text
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def folder_of(test: str, golden: Path) -> Path:
    """Return the folder of a test's answers: its name, and a hash of its id."""
    name = re.sub(r"\W+", "-", test.rpartition("::")[2])[:60].strip("-")
    return golden / f"{name}-{hashlib.sha256(test.encode()).hexdigest()[:10]}"


def write(answer: Mapping[str, Any]) -> None:
    """Write an answer into the folder of the running test, without this machine's folders."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    test = os.environ.get("GOLDEN_TEST", test) or "no test"
    folder = folder_of(test, Path(os.environ["GOLDEN"]))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TEST_FILE).write_text(test)
    text = json.dumps(answer, indent=1, default=str).replace(os.getcwd(), ".")
    text = _TMP.sub("TMP", text)
    for number in range(len(list(folder.iterdir())), 10000):
        with contextlib.suppress(FileExistsError), open(folder / f"{number:04}.json", "x") as file:
            file.write(text + "\n")
            return
