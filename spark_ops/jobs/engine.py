"""This module checks that Java and Spark's Python packages are installed; each error is one line for the operator.

It does not import Spark, so that `doctor` and the start of a job can check without starting a JVM.
Source: spark §4.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

JAVA_MIN: Final = 17
"""The oldest Java that Spark 4 runs on."""

_ASK_S: Final = 20.0
_FILE: Final = re.compile(r"file:(?://)?(/[^\s,;'\"()\[\]{}]{1,300})")
"""A file in an error's text. Spark writes paths as URIs."""


class EngineError(Exception):
    """Spark cannot run here or has failed; the error's text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation.   version: the major version, 0 if unknown."""

    path: Path
    version: int


def java() -> Java:
    """Return the Java that Spark would start: from JAVA_HOME, else from PATH. Raises: EngineError if unsuitable."""
    install = f"install Java {JAVA_MIN} or newer (Debian: apt install openjdk-17-jre-headless)"
    home = os.environ.get("JAVA_HOME")
    named = Path(home) / "bin" / "java" if home else None
    if named is not None and not os.access(named, os.X_OK):
        raise EngineError(f"JAVA_HOME is {home}, where there is no bin/java: correct it, or {install}")
    found = str(named) if named is not None else shutil.which("java")
    if found is None:
        raise EngineError(f"Spark needs Java, and there is none: {install}, or set JAVA_HOME")
    path = Path(found)
    version = _version(path)
    if 0 < version < JAVA_MIN:
        raise EngineError(
            f"{path} is Java {version}, which is too old for Spark: {install}, or set JAVA_HOME"
        )
    return Java(path, version)


def packages(*names: str) -> None:
    """Check that the Python packages are installed. Raises: EngineError if one is missing."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise EngineError(
            f"the Python package {' and '.join(missing)} is missing: pip install 'fluffle[spark]'"
        )


def one_line(error: BaseException) -> str:
    """Return the relevant line of an error of Spark: the last cause, else the first line; without Java packages.

    The deepest cause often names no file, so the first file that the text names is added.
    """
    text = str(getattr(error, "java_exception", None) or error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    line = (causes or lines or [type(error).__name__])[-1 if causes else 0]
    line = re.sub(r"^(?:Caused by: )?(?:[\w$]+\.)+([\w$]+(?:Exception|Error)): ", r"\1: ", line)[:500]
    named = None if "/" in line else _FILE.search(text)
    return line if named is None else f"{line} ({named[1]})"


def _version(path: Path) -> int:
    """Return Java's major version from the file `release` of the installation, else by running java (0.3 s)."""
    release = path.resolve().parent.parent / "release"
    try:
        told = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        try:
            asked = subprocess.run(
                [path, "-version"], capture_output=True, text=True, timeout=_ASK_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0
        told = asked.stderr + asked.stdout
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', told)
    return int(match[1]) if match else 0
