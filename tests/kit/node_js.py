"""Node.js for tests of its clients: packages of npm that `.ci/run` installs, and programs that use them.

Without Node.js or a package a test is skipped, with the reason; `FLUFFLE_NPM` names another folder with node_modules.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kit.patience import patience

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAM_S: Final = 60.0


def packages_folder() -> Path:
    """Return the folder in whose node_modules the packages are."""
    return Path(os.environ.get("FLUFFLE_NPM") or ROOT / "var" / "npm")


def needs_packages(*names: str) -> Path:
    """Return the folder with the packages, or skip the test.   names: of packages of npm."""
    if shutil.which("node") is None:
        pytest.skip("there is no Node.js")
    folder = packages_folder()
    missing = [name for name in names if not (folder / "node_modules" / name / "package.json").is_file()]
    if missing:
        pytest.skip(f"npm's packages {', '.join(missing)} are not in {folder}: .ci/run installs them")
    return folder


def run_program(program: Path, *arguments: str) -> Any:
    """Run a program to its end, and return the JSON that it prints."""
    done = subprocess.run(
        ["node", str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S * patience(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
