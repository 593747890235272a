"""Times of day as RabbitMQ shows them."""

from datetime import UTC, datetime


def moment(time_ms: int) -> str:
    """Return a time of day as RabbitMQ 3.10 shows it: `2026-11-21T09:05:48.796+00:00`."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
