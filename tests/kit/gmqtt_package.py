"""The client gmqtt, unmodified, from a folder of its own: its package has a folder `tests`, which would hide ours."""

import importlib
import os
import sys
from pathlib import Path
from typing import Any, Final

import pytest

FOLDER: Final = Path(os.environ.get("FLUFFLE_GMQTT", Path(__file__).resolve().parents[2] / "var" / "gmqtt"))
"""The folder: `pip install --no-deps --target var/gmqtt gmqtt` puts it there."""


def gmqtt() -> Any:
    """Return the module, or skip the tests of a module that asks for it while it is imported."""
    if not (FOLDER / "gmqtt").exists():
        pytest.skip(f"there is no gmqtt in {FOLDER}", allow_module_level=True)
    sys.path.append(str(FOLDER))
    try:
        return importlib.import_module("gmqtt")
    finally:
        sys.path.remove(str(FOLDER))
