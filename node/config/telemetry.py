"""Telemetry's settings are made here from the given values. Source: spark §2, docs/telemetry.md."""

from typing import Any, Final

from node.config.config import TelemetryConfig
from node.config.given import Given

DIRECTORY: Final = "telemetry"
"""The default directory, relative to the data directory."""


def telemetry(given: Given, option: str | None, data_dir: str) -> TelemetryConfig:
    """Return the settings, off unless a file or the command line says on.   option: the directory of `--telemetry`."""
    said: dict[str, Any] = {}
    if option is not None:
        said["is_on"] = True
        given.require(bool(option), "--telemetry", "it needs a directory")
    directory = option or given.fields.get("telemetry.directory") or f"{data_dir.rstrip('/')}/{DIRECTORY}"
    labels = given.families.get("telemetry_labels", {})
    # The family's name comes with its values, as in "label.rack".
    named = {name.rpartition(".")[2]: value for name, value in labels.items()}
    zone = given.fields.get("telemetry.zone") or None
    return given.section(TelemetryConfig, "telemetry", directory=directory, labels=named, zone=zone, **said)
