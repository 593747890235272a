"""The client mqtt.js, unmodified: the npm package `mqtt`, for Node.js and, as its own bundle, for browsers."""

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]

PACKAGE: Final = Path(os.environ.get("FLUFFLE_MQTT_JS", ROOT / "var" / "npm" / "node_modules" / "mqtt"))
"""The folder of the package: `npm install --no-save --prefix var/npm mqtt` puts it there."""

BUNDLE: Final = PACKAGE / "dist" / "mqtt.min.js"

needs_package: Final = pytest.mark.skipif(not BUNDLE.exists(), reason=f"there is no mqtt.js in {PACKAGE}")
needs_node: Final = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
