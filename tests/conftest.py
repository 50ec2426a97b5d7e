"""Every test runs in a folder of its own, on one device, from one seed; tiny data sets in the real
on-disk formats.
"""

import configparser
import contextlib
import importlib.util
import io
import json
import os
import pickle
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

import resnet_fn  # noqa: F401  (sets MindSpore's environment before anything imports it)
from resnet_fn.checkpoint.folder import write_checkpoint
from resnet_fn.checkpoint.run_folder import RunFolder
from resnet_fn.config.values import to_dict
from resnet_fn.runtime.lock import FolderLock
from resnet_fn.runtime.msrun import claim_port


def pytest_addoption(parser):
    parser.addoption(
        "--not-passed-in",
        type=Path,
        metavar="LOG",
        help="leave out the tests that a run before passed: what it printed, of pytest -rp",
    )


def pytest_collection_modifyitems(config, items):
    """Without such a log all tests run, so one that ends early leaves out fewer."""
    log = config.getoption("--not-passed-in")
    if log and log.exists():
        lines = set(log.read_text(encoding="utf-8").splitlines())
        items[:] = [item for item in items if f"PASSED {item.nodeid}" not in lines]


@pytest.hookimpl(trylast=True)  # after pytest's own, which makes the reporter
def pytest_configure(config):
    """One core for each of several test processes: MindSpore's threads spin, and would take each
    other's cores.
    """
    # xdist's processes have none
    if terminal := config.pluginmanager.getplugin("terminalreporter"):
        config.pluginmanager.register(FailuresAtOnce(terminal))
    number = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if number:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(number) % len(cores)]})


class FailuresAtOnce:
    """Print what failed when it fails; pytest itself prints it when all tests have ended, minutes
    later.
    """

    def __init__(self, terminal):
        self.terminal = terminal

    @pytest.hookimpl(trylast=True)  # after the letter F
    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.terminal.write_line("")
            self.terminal.write_sep("_", f"{report.nodeid}, {report.when}", red=True)
            self.terminal.write_line(report.longreprtext)


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    """Run in an empty folder, and fail a test that leaves MindSpore's artefacts in it."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    stray = [
        name for name in os.listdir(tmp_path) if name.startswith(("rank_", "kernel_meta", "mslog"))
    ]
    assert not stray


@pytest.fixture(autouse=True)
def one_seed():
    """What a test draws from NumPy's generator, as MindSpore does its default weights, is the same
    in any order.
    """
    np.random.seed(1)


@pytest.fixture(autouse=True)
def sigint_arrives():
    """In the main thread: a command that a test before called may have blocked it, and other
    threads would get it.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@pytest.fixture(scope="session", autouse=True)
def signals_count():
    """Under nohup SIGHUP is ignored, in a shell's background job SIGINT; runs of tests would
    inherit that.
    """
    handlers = {signal.SIGHUP: lambda *_: None, signal.SIGINT: signal.default_int_handler}
    ignored = [number for number in handlers if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, handlers[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture
def as_process_1():
    """What stands before a command so that it is process 1, as in a container."""
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*words, "true"], stderr=subprocess.DEVNULL).returncode
    ):
        pytest.skip("no process namespaces here")
    return words


@pytest.fixture(scope="session")
def device():
    """MindSpore on the CPU, started once."""
    import mindspore

    from resnet_fn.runtime import process

    process.start("CPU")
    mindspore.set_seed(1)


@pytest.fixture(scope="session")
def torchvision():
    """torchvision beside a CPU build of PyTorch, where its C++ operators do not load: its
    transforms need none of them.

    They are declared, so that its Python code can register what it has for them.
    """
    torch = pytest.importorskip("torch")
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.origin:
        pytest.skip("compares with torchvision: pip install --no-deps torchvision==0.28.0")
    if torch.version.cuda is None:
        root = Path(spec.origin).parent
        library = torch.library.Library("torchvision", "FRAGMENT")
        code = "".join(
            (root / name).read_text()
            for name in ("_meta_registrations.py", "ops/_register_onnx_ops.py")
        )
        for name in set(
            re.findall(r'(?:register_meta\("|register_fake\("torchvision::)(\w+)"\)', code)
        ):
            library.define(f"{name}(Tensor x) -> Tensor")
        KEPT.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its image decoders, which do not load either
        import torchvision.datasets
        import torchvision.transforms

        return torchvision


KEPT = []  # operators last as long as the library that declares them


@pytest.fixture(scope="session")
def python():
    """python(*words, **variables) runs Python with these words and variables more, and returns what
    came of it.

    Args:
        code: what it must exit with; None: anything.
        without: its environment has no variable whose name begins so.
        seconds: how long it may take.
    """

    def run(
        *words,
        code=0,
        without="",
        seconds=120,
        cwd=None,
        **variables,
    ):
        kept = {
            name: value
            for name, value in os.environ.items()
            if not without or not name.startswith(without)
        }
        command = [sys.executable, *map(str, words)]
        environment = {**kept, **variables}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, cwd=cwd, env=environment
        )
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The command `resnet_fn`, written as pip does from the entry point in setup.cfg."""
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[1] / "setup.cfg")
    name, _, entry = setup["options.entry_points"]["console_scripts"].strip().partition(" = ")
    module, _, function = entry.partition(":")
    path = tmp_path_factory.mktemp("bin") / name
    path.write_text(
        f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\n"
        f"if __name__ == '__main__':\n    sys.exit({function}())\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def says():
    """says(error, *parts): the error, or text, is one line that has these parts (field, value, fix)
    in this order.
    """

    def check(error, *parts):
        text = str(error.value if isinstance(error, pytest.ExceptionInfo) else error).removesuffix(
            "\n"
        )
        start = 0
        assert "\n" not in text
        for part in map(str, parts):
            assert part in text[start:], f"{part!r} is not in {text[start:]!r} of {text!r}"
            start = text.index(part, start) + len(part)

    return check


@pytest.fixture(scope="session")
def raises_line(says):
    """`with raises_line(*parts, kind=ValueError)`: the block raises this error, whose message
    `says` these parts.
    """

    @contextlib.contextmanager
    def check(*parts, kind=ValueError):
        with pytest.raises(kind) as caught:
            yield
        says(caught, *parts)

    return check


@pytest.fixture(scope="session")
def write_recipe():
    """write_recipe(settings) writes them as the recipe file mine.toml and returns its name."""

    def write(settings):
        lines = (
            f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
            for name, value in settings.items()
        )
        Path("mine.toml").write_text("".join(lines), encoding="utf-8")
        return "mine.toml"

    return write


@pytest.fixture(scope="session")
def events():
    """events(run, kind) reads a run's log; every line of it must be whole."""

    def read(run, kind):
        lines = Path(run, "metrics.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    return read


@pytest.fixture(scope="session")
def board_events():
    """board_events(folder): all of its TensorBoard files' events, in the order in which they were
    written.
    """
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    def read(folder):
        paths = sorted(Path(folder).glob("events.out.tfevents.*"))
        return [event for path in paths for event in LegacyEventFileLoader(str(path)).Load()]

    return read


@pytest.fixture(scope="session")
def last_state():
    """last_state(run): the JSON state of a run's last checkpoint, and the bytes of each of its
    arrays.
    """

    def read(run):
        last = RunFolder(Path(run)).newest()
        return last.state, {
            name: array.tobytes() for name, array in {**last.weights, **last.training}.items()
        }

    return read


@pytest.fixture(scope="session")
def processes():
    """processes(text): pid → command line of all processes whose command line has this text in
    it.
    """

    def naming(text):
        lines = {
            process.pid: " ".join(process.info["cmdline"] or ())
            for process in psutil.process_iter(["cmdline"])
        }
        return {pid: line for pid, line in lines.items() if str(text) in line}

    return naming


@pytest.fixture(scope="session")
def wait_until():
    """wait_until(holds, seconds, process): what `holds` returns, as soon as it is true; the process
    must live on.
    """

    def wait(holds, seconds=60, process=None):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and (process is None or process.poll() is None):
            if value := holds():
                return value
            time.sleep(0.005)
        if process is None:
            raise AssertionError(f"not within {seconds} s")
        process.kill()
        raise AssertionError(
            process.communicate()[0] if process.stdout else Path("msrun.txt").read_text()
        )

    return wait


@pytest.fixture(scope="session")
def wait_for_port(wait_until):
    """wait_for_port(port) waits until a process listens at this port, or nobody if it is to be
    `free`.
    """

    def listens(port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    return lambda port, free=False: wait_until(lambda: listens(port) != free)


@pytest.fixture(scope="session")
def start_msrun():
    """start_msrun(workers, *words) starts msrun; what it prints goes to msrun.txt (its `tail`s may
    outlive it).

    Args:
        inside: what msrun is started with, `ip netns exec …`.
    """

    def start(workers, *words, inside=()):
        here = Path(sys.executable).parent
        flags = f"--worker_num {workers} --local_worker_num {workers} --log_dir logs"
        command = [*inside, here / "msrun", *flags.split(), *words]
        environment = {**os.environ, "PATH": f"{here}:{os.environ['PATH']}"}
        with open("msrun.txt", "wb") as output:
            return subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment
            )

    return start


@pytest.fixture
def msrun(start_msrun):
    """msrun(workers, *command) runs a Python command on several workers and returns rank 0's
    log.
    """

    def run(workers, *command):
        port = claim_port("127.0.0.1", 0)
        process = start_msrun(
            workers, "--join", "True", "--master_port", str(port), "python", *command
        )
        try:
            code = process.wait(timeout=600)
        finally:
            process.kill()
        log = Path("logs/worker_0.log").read_text()
        assert code == 0, log + Path("msrun.txt").read_text()
        return log

    return run


@pytest.fixture
def checkpoint(request):
    """checkpoint(run, *updates) writes a checkpoint of RECIPE after each update; returns the last
    one's folder.
    """

    def write(run, *updates, best=None, recipe=request.module.RECIPE):
        for update in updates:
            arrays = {"w": np.full(3, update, np.float32)}
            state = {"update": update, "best": best, "last": None, "recipe": to_dict(recipe)}
            written = write_checkpoint(
                RunFolder(Path(run)).checkpoint_path(update), arrays, arrays, state
            )
        return written

    return write


@pytest.fixture
def lock():
    with FolderLock() as held:
        yield held


def photograph(seed, width=60, height=40):
    """A smooth picture with some noise: what JPEG is made for."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize(
        (width, height), Image.BICUBIC
    )
    noisy = np.asarray(coarse, np.int16) + rng.integers(-6, 7, (height, width, 1))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def encoded(image, kind="JPEG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def write_photographs(root, train, val):
    """3 classes with names of all kinds, so many photographs each, of different sizes."""
    for half, count in (("train", train), ("val", val)):
        for number, name in enumerate(("bee", "cat with a space", "éléphant")):
            place = root / half / name
            place.mkdir(parents=True)
            for k in range(count):
                picture = photograph(
                    1000 * number + 10 * k + (half == "val"), 60 + 7 * k, 40 + 5 * number
                )
                (place / f"{k:02d} ü.JPEG").write_bytes(encoded(picture, quality=90))
    return root


@pytest.fixture(scope="session")
def ten_each(tmp_path_factory):
    """3 classes, 7 training and 3 validation photographs each, of different sizes. Not to be
    changed.
    """
    return write_photographs(tmp_path_factory.mktemp("data") / "photographs", 7, 3)


@pytest.fixture
def folder(ten_each, tmp_path):
    """A copy of `ten_each` to be changed."""
    return shutil.copytree(ten_each, tmp_path / "photographs")


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """As `ten_each`, 12 and 30: more than evaluation computes at a time. Not to be changed."""
    return write_photographs(tmp_path_factory.mktemp("data") / "photographs", 12, 30)


def write_cifar(root, name, binary, per_file=40):
    """Write a small CIFAR archive; returns the training images [N, 3, 32, 32] and labels that it
    holds.
    """
    ten = name == "cifar10"
    rng = np.random.default_rng(5)
    folders = {
        "cifar10": ("cifar-10-batches-py", "cifar-10-batches-bin"),
        "cifar100": ("cifar-100-python", "cifar-100-binary"),
    }
    place = root / folders[name][binary]
    place.mkdir(parents=True)
    batches = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    written = []
    for file in batches if ten else ("train", "test"):
        pixels = rng.integers(0, 256, (per_file, 3072), dtype=np.uint8)
        fine = rng.integers(0, 10 if ten else 100, per_file)
        coarse = rng.integers(0, 20, per_file)
        if binary:
            heads = [fine] if ten else [coarse, fine]
            np.column_stack([*heads, pixels]).astype(np.uint8).tofile(place / f"{file}.bin")
        else:
            key = b"labels" if ten else b"fine_labels"
            content = {b"data": pixels, key: fine.tolist(), b"batch_label": b"x"}
            (place / file).write_bytes(pickle.dumps(content, 2))
        written.append((pixels.reshape(-1, 3, 32, 32), fine))
    names = [f"class_{k}" for k in range(100)]
    if not ten and binary:
        (place / "fine_label_names.txt").write_text("\n".join(names) + "\n")
    elif not ten:
        content = {b"fine_label_names": [n.encode() for n in names]}
        (place / "meta").write_bytes(pickle.dumps(content, 2))
    images, labels = zip(*written[:-1], strict=True)
    return np.concatenate(images), np.concatenate(labels)


@pytest.fixture
def make_cifar():
    return write_cifar


@pytest.fixture
def foreign():
    """foreign(kind, path) makes a file that cannot be read in the usual way: "fifo", "device",
    "sparse" (60 GB), "nested" (JSON), or "folder". A test that reads without end fails after 20 s.
    """

    def make(kind, path):
        path = Path(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "sparse":
            path.touch()
            os.truncate(path, 60 << 30)
        elif kind == "nested":
            path.write_text("[" * 20_000)
        else:
            path.mkdir()
        return path

    def stop(*_):
        pytest.fail("the test reads without end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield make
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def limited(kind, most):
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


@pytest.fixture
def no_descriptors():
    """no_descriptors() is a `with` block in which no file can be opened (EMFILE)."""
    return lambda: limited(resource.RLIMIT_NOFILE, 0)


@pytest.fixture
def no_room():
    """no_room() is a `with` block on a full disk: no file of this process may grow beyond 0 bytes,
    or as many as given (so pytest itself may not write into one meanwhile).
    """
    return lambda most=0: limited(resource.RLIMIT_FSIZE, most)


@pytest.fixture
def another_user():
    """another_user() is a `with` block in which root is nobody."""

    @contextlib.contextmanager
    def changed():
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(user)

    return changed


@pytest.fixture
def make_photograph():
    return photograph


@pytest.fixture
def encode():
    return encoded
