"""Times in documents: seconds since 1970 here, `2026-11-21T09:00:00Z` there. Reads no clock."""

from datetime import UTC, datetime


def iso(seconds: float) -> str:
    """The time in whole seconds, rounded down. Raises: ValueError for what no calendar has."""
    try:
        moment = datetime.fromtimestamp(int(seconds), UTC)
    except (OverflowError, OSError) as error:
        raise ValueError(f"not a time: {seconds}") from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str) -> float:
    """Seconds since 1970 of such a text. Raises: ValueError: it is none."""
    if len(text) != 20:
        raise ValueError(f"not a time: {text[:40]!r}")
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise ValueError(f"not a time: {text!r}") from error
