"""Times in documents (`2026-11-21T09:00:00Z`) from and to seconds since 1970. No clock is read."""

from datetime import UTC, datetime


def iso(seconds: float) -> str:
    """Return a time as text, in whole seconds, rounded down. Raises: ValueError outside of the calendar's years."""
    try:
        moment = datetime.fromtimestamp(int(seconds), UTC)
    except (OverflowError, OSError) as error:
        raise ValueError(f"not a time: {seconds}") from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str) -> float:
    """Return a text of this form as seconds since 1970. Raises: ValueError for any other text."""
    if len(text) != 20:
        raise ValueError(f"not a time: {text[:40]!r}")
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise ValueError(f"not a time: {text!r}") from error
