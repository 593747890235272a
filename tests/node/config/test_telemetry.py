"""Settings of telemetry, without a disk."""

import pytest

from node.config.config import TelemetryConfig
from tests.node.config.test_management import load, problems


def test_it_is_off_unless_somebody_says_so() -> None:
    """Telemetry is off by default, so that those who don't use it do not pay for it."""
    assert load().telemetry == TelemetryConfig(directory="/var/lib/fluffle/rabbit@box/telemetry")


def test_all_keys() -> None:
    """As docs/telemetry.md has them."""
    text = """
    telemetry.enabled = true
    telemetry.directory = /srv/telemetry
    telemetry.interval = 2000
    telemetry.max_bytes = 8MiB
    telemetry.zone = eu-1a
    telemetry.label.rack = r1
    telemetry.label.disk = ssd
    """
    labels = {"rack": "r1", "disk": "ssd"}
    assert load(text).telemetry == TelemetryConfig(
        is_on=True,
        directory="/srv/telemetry",
        interval_s=2.0,
        max_bytes=8 << 20,
        zone="eu-1a",
        labels=labels,
    )


def test_the_command_line_wins() -> None:
    """`--telemetry DIR` switches it on."""
    telemetry = load("telemetry.enabled = false\ntelemetry.directory = /a\n", telemetry="/b").telemetry
    assert (telemetry.is_on, telemetry.directory) == (True, "/b")


@pytest.mark.parametrize(
    "line",
    ["telemetry.interval = 10", "telemetry.max_bytes = 5", "telemetry.enabled = on", "telemetry.zones = a"],
)
def test_what_is_refused(line: str) -> None:
    """With the line, and what is allowed."""
    (problem,) = problems(line)
    assert "telemetry" in problem
