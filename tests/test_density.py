"""How dense the code is: syntax nodes in a code line, and code lines in a function."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "density.py"
SPEC = importlib.util.spec_from_file_location("density", SCRIPT)
DENSITY = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(DENSITY)
MOST = 11.0  # syntax nodes in a code line
LONGEST = 60  # code lines in a function
# Modules that were denser when the limit was set, and how dense they may be at most.
DENSER = {
    "parity/explain/call_changes.py": 11.9,  # a table of lambdas
    "data/class_names.py": 13.9,
    "data/images.py": 14.8,
    "data/mix.py": 14.2,
    "data/preprocess.py": 13.2,
    "doctor/arithmetic.py": 13.2,
    "evaluation/metrics.py": 14.5,
    "evaluation/prediction_table.py": 12.1,
    "evaluation/task.py": 12.6,
    "models/batchnorm.py": 12.2,
    "models/inputs.py": 13.6,
    "models/layers.py": 13.7,
    "models/positions.py": 13.3,
    "models/untrained.py": 11.5,
    "models/winograd.py": 12.4,
    "report/fonts.py": 13.3,
    "report/run_table.py": 11.4,
    "run/console.py": 13.5,
    "runtime/cpus.py": 12.7,
    "telemetry/norms.py": 11.4,
    "weights/net_in_file.py": 11.9,
}
MODULES = [path.relative_to(DENSITY.PACKAGE).as_posix() for path in DENSITY.PACKAGE.rglob("*.py")]


def test_no_module_is_denser_than_its_limit():
    density = {name: DENSITY.density(DENSITY.PACKAGE / name) for name in MODULES}
    limits = {name: DENSER.get(name, MOST) + 0.05 for name in MODULES}
    wrong = {name: one for name, one in density.items() if one > limits[name]}
    assert not wrong


def test_every_module_listed_as_denser_is_denser():
    """No module of it is gone, or has become light enough to leave it."""
    assert not [name for name in DENSER if DENSITY.density(DENSITY.PACKAGE / name) <= MOST]


def test_long_functions_have_a_comment_with_the_reason():
    long = {
        module: found
        for module in MODULES
        if (found := DENSITY.long_functions(DENSITY.PACKAGE / module, LONGEST))
    }
    assert not long


def test_docstrings_comments_and_empty_lines_are_no_code(tmp_path):
    path = tmp_path / "module.py"
    path.write_text('"""Two\nlines."""\n\n# a comment\nx = 1\n')
    assert DENSITY.density(path) == 7  # Module, Expr, Constant, Assign, Name, Store, Constant
