"""Nothing that is received is ever run: no pickle, no code made of text, no programs (reliability §3.6, §6).

What pickles do that are sent to a node is in tests/chaos/test_bad_peers.py. Here: no file of ours can unpickle, and no
node that runs does.
"""

import ast
import pickle
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.kit.server_process import ROOT
from tests.security.session import Session

FOLDERS: Final = ("node", "cluster", "spark_ops")

MODULES: Final = frozenset(
    {
        "pickle",
        "_pickle",
        "cPickle",
        "cloudpickle",
        "dill",
        "joblib",
        "jsonpickle",
        "marshal",
        "shelve",
        "dbm",
        "yaml",
    }
)
"""These modules make objects, or code, of bytes. numpy's `load` counts as well, see below."""

CALLS: Final = frozenset({"eval", "exec", "compile", "__import__"})

WORTH_READING: Final = re.compile(
    rf"\b({'|'.join(MODULES)}|subprocess|system|popen|shell|allow_pickle)\b|(?<![.\w])({'|'.join(CALLS)})\("
)
"""Files in which none of that stands as a word need not be parsed, which takes seconds for all of them."""


class _File(NamedTuple):
    """Holds what a file of ours imports and calls."""

    name: str
    modules: frozenset[str]
    calls: list[ast.Call]


@cache
def _files() -> list[_File]:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    return [_read(name, ast.parse(text)) for name, text in texts.items() if WORTH_READING.search(text)]


def _read(name: str, tree: ast.Module) -> _File:
    modules, calls = set(), []
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in each.names}
        elif isinstance(each, ast.ImportFrom):
            modules.add((each.module or "").partition(".")[0])
        elif isinstance(each, ast.Call):
            calls.append(each)
    return _File(name, frozenset(modules), calls)


def test_nobody_imports_what_makes_objects_of_bytes() -> None:
    using = {file.name for file in _files() if not MODULES.isdisjoint(file.modules)}
    assert using == {"cluster/metadata/safe_pickle.py"}


def test_nobody_makes_code_of_text() -> None:
    found = [
        f"{file.name}:{call.lineno}"
        for file in _files()
        for call in file.calls
        if isinstance(call.func, ast.Name) and call.func.id in CALLS
    ]
    assert found == []


def test_no_shell_is_started() -> None:
    """Programs are started by lists of arguments, and by the command line alone: a node starts none."""
    found = [
        f"{file.name}:{call.lineno}"
        for file in _files()
        for call in file.calls
        if any(key.arg == "shell" for key in call.keywords)
        or ast.unparse(call.func) in ("os.system", "os.popen")
    ]
    assert found == []
    starting = {file.name.rpartition("/")[0] for file in _files() if "subprocess" in file.modules}
    assert starting <= {"node/cli", "node/cli/ctl", "spark_ops/jobs", "spark_ops/cli"}


def test_arrays_are_never_unpickled() -> None:
    """`numpy.load` unpickles objects if it is told to."""
    keys = {key.arg for file in _files() for call in file.calls for key in call.keywords}
    assert "allow_pickle" not in keys


# --- of a running node ---

PICKLE: Final = pickle.dumps(Path("/nowhere"))


def test_the_watch_sees_what_it_is_there_for(tmp_path: Path) -> None:
    """The watch sees forbidden calls, without which the test below proves nothing."""
    notes = tmp_path / "notes"
    code = (
        "import os, pickle, sys\n"
        "from tests.security.watched_node import watch\n"
        f"watch({str(notes)!r})\n"
        f"pickle.loads({PICKLE!r})\n"
        "os.system('true')\n"
        "import subprocess; subprocess.run(['true'])\n"
        "exec('1')\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
    events = [line.split()[0] for line in notes.read_text().splitlines()]
    assert events[:2] == ["pickle.find_class", "os.system"]
    assert "subprocess.Popen" in events
    assert "exec" not in events, "only our own files count"


@pytest.mark.slow
def test_a_node_does_none_of_it(session: Session) -> None:
    """From the first line of its start to the last of its stop, with all that the session asks of it."""
    notes = {node.name: node.notes.read_text() for node in session.nodes}
    assert notes == dict.fromkeys(notes, "")
