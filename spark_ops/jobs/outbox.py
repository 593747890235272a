"""Alerts of `health --follow` leave through an outbox: a file or a webhook gets each change of findings at least once.

The outbox is the stream's folder of judgements (`spark_ops.jobs.streaming`), each with what it raised and cleared. A
sink has a cursor, which is the number of the last judgement that it has taken. The cursor is written after the sink has
answered, so a crash in between repeats an alert and never loses one; receivers know a repeated alert by its `id`. A
sink that fails gets the alert again in the next round, and the other sinks do not wait for it.

    {"format":"spark-ops-alert/1","id":"prod/29712345","cluster","end":iso,"verdict","score",
     "raised":[findings of the health document],"cleared":[{"id","text"}]}

The first alert of a new sink has all standing findings.
"""

import hashlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit, urlunsplit

from spark_ops.telemetry.manifest import write_atomically

FORMAT: Final = "spark-ops-alert/1"
ANSWER_S: Final = 10.0
"""The longest time that a webhook may take to answer; without an answer until then it has failed."""
ROUND_MAX: Final = 100
"""The most alerts that one sink gets in one round; the others wait for the next one."""

Judgement = dict[str, Any]
"""A judgement as the stream stores it: number, end (minutes since 1970), cluster, verdict, score, standing (ids),
raised, cleared, texts (by id), findings (the standing ones, as in the health document)."""


class SinkError(Exception):
    """A sink did not take an alert; the error's text is one line without credentials."""


class Sink(Protocol):
    """A receiver of alerts.   name: for the operator."""

    @property
    def name(self) -> str:
        """The receiver's name for the operator, without credentials."""
        ...

    def send(self, alert: dict[str, Any]) -> None:
        """Hand over an alert. Raises: SinkError."""
        ...


class FileSink:
    """Appends each alert to a file as a line of JSON, and syncs the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def send(self, alert: dict[str, Any]) -> None:
        """Append an alert. Raises: SinkError."""
        line = json.dumps(alert, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        try:
            with self.path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        line = b"\n" + line  # a crash left a part of a line
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise SinkError(f"{self.path}: {error.strerror or error}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would turn a POST into a GET."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return nothing, so that the answer counts as an error."""


class WebhookSink:
    """Posts each alert to a URL as JSON; any answer from 200 to 299 accepts it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opener = urllib.request.build_opener(_NoRedirects)

    @property
    def name(self) -> str:
        """The URL without credentials, query and fragment."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        where = f"[{host}]" if ":" in host else host
        return urlunsplit(
            (parts.scheme, where + (f":{parts.port}" if parts.port else ""), parts.path, "", "")
        )

    def send(self, alert: dict[str, Any]) -> None:
        """Post an alert. Raises: SinkError."""
        body = json.dumps(alert).encode()
        headers = {"content-type": "application/json", "idempotency-key": str(alert["id"])}
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            with self._opener.open(request, timeout=ANSWER_S) as response:
                response.read(1 << 16)
        except urllib.error.HTTPError as error:
            raise SinkError(f"{self.name} answered {error.code}") from error
        except (OSError, HTTPException) as error:
            raise SinkError(f"{self.name}: {getattr(error, 'reason', None) or error}") from error


def sink_of(text: str) -> Sink:
    """Return the sink that an option names: an http or https URL, else a file. Raises: ValueError, in one line."""
    if "://" not in text:
        return FileSink(Path(text).absolute())
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("alerts go to a file or to an http or https URL")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a webhook takes no user or password in its URL: put a token into its path or query")
    return WebhookSink(text)


def alert_of(judgement: Judgement, *, is_first: bool) -> dict[str, Any] | None:
    """Return the alert of a judgement; None if nothing changed.   is_first: the alert has all standing findings."""
    raised = set(judgement["standing"] if is_first else judgement["raised"])
    cleared = [] if is_first else judgement["cleared"]
    if not raised and not cleared:
        return None
    texts = judgement.get("texts", {})
    return {
        "format": FORMAT,
        "id": f"{judgement.get('cluster', '')}/{judgement.get('number', judgement['end'])}",
        "cluster": judgement.get("cluster", ""),
        "end": judgement.get("end_iso"),
        "verdict": judgement.get("verdict"),
        "score": judgement.get("score"),
        "raised": [each for each in judgement.get("findings", ()) if each["id"] in raised],
        "cleared": [{"id": each, "text": texts.get(each)} for each in cleared],
    }


class Outbox:
    """The judgements of a stream and the cursors of its sinks.   judged, cursors: their directories."""

    def __init__(self, judged: Path, cursors: Path) -> None:
        self._judged = judged
        self._cursors = cursors
        cursors.mkdir(parents=True, exist_ok=True)

    def deliver(self, sinks: Sequence[Sink]) -> list[str]:
        """Send to each sink the alerts that it has not taken, oldest first. Returns: a line for each sink that failed.

        Raises: OSError if a cursor cannot be written.
        """
        return [failure for sink in sinks if (failure := self._deliver(sink)) is not None]

    def _deliver(self, sink: Sink) -> str | None:
        cursor = self._cursors / f"{hashlib.sha256(_address(sink).encode()).hexdigest()[:16]}.json"
        taken = _read_end(cursor)
        ends = [end for end in self._ends() if taken is None or end > taken]
        if taken is None:
            ends = ends[-1:]
        for end in ends[:ROUND_MAX]:
            judgement = read_judgement(self.path(end))
            alert = None if judgement is None else alert_of(judgement, is_first=taken is None)
            if alert is not None:
                try:
                    sink.send(alert)
                except SinkError as error:
                    return str(error)
            write_atomically(cursor, json.dumps({"sink": sink.name, "end": end}).encode())
            taken = end
        return None

    def path(self, end: int) -> Path:
        """Return the file of a judgement."""
        return self._judged / f"{end:012d}.json"

    def taken_by_all(self) -> int | None:
        """Return the end of the last judgement that all sinks which ever took one have taken; None if there is no
        sink."""
        ends = [_read_end(path) for path in self._cursors.glob("*.json")]
        return min((end for end in ends if end is not None), default=None)

    def _ends(self) -> Iterator[int]:
        return iter(sorted(_numbers(self._judged.glob("*.json"))))


def _address(sink: Sink) -> str:
    return sink.url if isinstance(sink, WebhookSink) else sink.name


def _numbers(paths: Iterable[Path]) -> Iterator[int]:
    for path in paths:
        if path.stem.isdecimal():
            yield int(path.stem)


def _read_end(path: Path) -> int | None:
    try:
        return int(json.loads(path.read_bytes())["end"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_judgement(path: Path) -> Judgement | None:
    """Return a stored judgement; None if its file is damaged or gone."""
    try:
        document: Any = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    is_whole = isinstance(document, dict) and {"end", "standing", "raised", "cleared"} <= document.keys()
    return document if is_whole else None
