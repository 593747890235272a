"""Alerts leave at least once, in order, and a sink that fails holds up no other one."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spark_ops.jobs.outbox import ROUND_MAX, FileSink, Outbox, SinkError, WebhookSink, alert_of, sink_of


class Taking:
    """A sink that fails as often as it is told to.   alerts: what it took."""

    def __init__(self, name: str = "sink") -> None:
        self.name = name
        self.alerts: list[dict[str, Any]] = []
        self.failures = 0

    def send(self, alert: dict[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise SinkError(f"{self.name} is away")
        self.alerts.append(alert)


def finding(name: str) -> dict[str, Any]:
    return {"id": name, "text": f"text of {name}"}


class Judging:
    """A stream's folder of judgements."""

    def __init__(self, root: Path) -> None:
        self.judged = root / "judged"
        self.judged.mkdir()
        self.root = root
        self.standing: list[str] = []

    def outbox(self) -> Outbox:
        return Outbox(self.judged, self.root / "told")

    def add(self, end: int, *standing: str) -> None:
        kept = {
            "end": end,
            "cluster": "prod",
            "standing": list(standing),
            "raised": [each for each in standing if each not in self.standing],
            "cleared": [each for each in self.standing if each not in standing],
            "texts": {each: f"text of {each}" for each in {*standing, *self.standing}},
            "findings": [finding(each) for each in standing],
        }
        self.standing = list(standing)
        (self.judged / f"{end:012d}.json").write_text(json.dumps(kept))


@pytest.fixture
def judging(tmp_path: Path) -> Judging:
    return Judging(tmp_path)


def told(sink: Taking) -> list[tuple[int, list[str], list[str]]]:
    def ids(alert: dict[str, Any], key: str) -> list[str]:
        return [one["id"] for one in alert[key]]

    return [
        (int(alert["id"].split("/")[1]), ids(alert, "raised"), ids(alert, "cleared")) for alert in sink.alerts
    ]


def test_a_new_sink_gets_what_stands_and_then_each_change(judging: Judging) -> None:
    judging.add(10, "a")
    judging.add(11, "a", "b")
    sink = Taking()
    assert judging.outbox().deliver([sink]) == []
    assert told(sink) == [(11, ["a", "b"], [])]
    judging.add(12, "a", "b")
    judging.add(13, "b", "c")
    assert judging.outbox().deliver([sink]) == []
    assert told(sink)[1:] == [(13, ["c"], ["a"])]
    assert sink.alerts[1]["cleared"] == [{"id": "a", "text": "text of a"}]
    judging.outbox().deliver([sink])
    assert len(sink.alerts) == 2


def test_a_sink_that_was_away_gets_all_of_it_later(judging: Judging) -> None:
    judging.add(10)
    away, other = Taking("away"), Taking("other")
    judging.outbox().deliver([away, other])
    away.failures = 2
    judging.add(11, "a")
    assert judging.outbox().deliver([away, other]) == ["away is away"]
    judging.add(12)
    assert judging.outbox().deliver([away, other]) == ["away is away"]
    assert told(other) == [(11, ["a"], []), (12, [], ["a"])]
    assert judging.outbox().deliver([away, other]) == []
    assert told(away) == told(other)


def test_a_crash_before_the_cursor_is_written_repeats(
    judging: Judging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delivery is at least once after a crash: nothing is lost, and the id is the same."""
    judging.add(10)
    sink = Taking()
    judging.outbox().deliver([sink])
    judging.add(11, "a")

    def no_power(*_: Any) -> None:
        raise OSError("no power")

    monkeypatch.setattr("spark_ops.jobs.outbox.write_atomically", no_power)
    with pytest.raises(OSError, match="no power"):
        judging.outbox().deliver([sink])
    monkeypatch.undo()
    judging.outbox().deliver([sink])
    assert told(sink) == [(11, ["a"], [])] * 2
    assert sink.alerts[0]["id"] == sink.alerts[1]["id"] == "prod/11"


def test_a_round_has_an_end(judging: Judging) -> None:
    judging.add(0)
    sink = Taking()
    judging.outbox().deliver([sink])
    for end in range(1, ROUND_MAX + 11):
        judging.add(end, f"f{end}")
    judging.outbox().deliver([sink])
    assert len(sink.alerts) == ROUND_MAX
    judging.outbox().deliver([sink])
    assert [end for end, _, _ in told(sink)] == list(range(1, ROUND_MAX + 11))


def test_a_damaged_judgement_is_passed_over(judging: Judging) -> None:
    judging.add(10)
    sink = Taking()
    judging.outbox().deliver([sink])
    (judging.judged / f"{11:012d}.json").write_text("{")
    judging.add(12, "b")
    judging.outbox().deliver([sink])
    assert told(sink) == [(12, ["b"], [])]


def test_all_sinks_decide_what_may_be_removed(judging: Judging) -> None:
    assert judging.outbox().taken_by_all() is None
    judging.add(10)
    slow = Taking("slow")
    judging.outbox().deliver([Taking("quick"), slow])
    judging.add(11, "a")
    slow.failures = 1
    judging.outbox().deliver([Taking("quick"), slow])
    assert judging.outbox().taken_by_all() == 10


def test_nothing_new_is_no_alert() -> None:
    judgement = {"end": 1, "standing": ["a"], "raised": [], "cleared": []}
    assert alert_of(judgement, is_first=False) is None
    assert alert_of({**judgement, "standing": []}, is_first=True) is None


def test_a_file_has_whole_lines(tmp_path: Path) -> None:
    """A crash may have left a part of one."""
    path = tmp_path / "alerts.ndjson"
    sink = FileSink(path)
    sink.send({"id": "a/1"})
    with path.open("ab") as file:
        file.write(b'{"id": "a/')
    sink.send({"id": "a/2"})
    sink.send({"id": "a/3"})
    lines = path.read_text().splitlines()
    assert [json.loads(lines[at])["id"] for at in (0, 2, 3)] == ["a/1", "a/2", "a/3"]
    with pytest.raises(SinkError, match="No such file"):
        FileSink(tmp_path / "none" / "x").send({"id": "a/1"})


@pytest.mark.parametrize(
    "text", ["ftp://host/x", "http:///x", "http://user:secret@host/", "https://:secret@host/"]
)
def test_sinks_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(?!.*secret).*URL") as caught:
        sink_of(text)
    assert "secret" not in str(caught.value)


@pytest.fixture
def hook() -> Iterator[tuple[str, list[int], list[dict[str, Any]]]]:
    """Yield the URL of a webhook, the codes that it answers with, and what it got."""
    codes: list[int] = []
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append({"key": self.headers["idempotency-key"], **json.loads(body)})
            self.send_response(codes.pop(0) if codes else 204)
            self.send_header("location", "/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Write no log line."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", codes, got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.real
def test_a_webhook(hook: tuple[str, list[int], list[dict[str, Any]]]) -> None:
    """Errors and redirects are failures; the name in the message has no query."""
    url, codes, got = hook
    sink = sink_of(f"{url}?token=secret")
    assert isinstance(sink, WebhookSink)
    assert sink.name == url
    sink.send({"id": "prod/1"})
    assert got == [{"key": "prod/1", "id": "prod/1"}]
    codes += [500, 302]
    for code in (500, 302):
        with pytest.raises(SinkError, match=f"^{url} answered {code}$"):
            sink.send({"id": "prod/2"})


@pytest.mark.real
def test_a_webhook_that_is_not_there() -> None:
    from tests.kit.ports import free_port

    with pytest.raises(SinkError, match="Connection refused"):
        WebhookSink(f"http://127.0.0.1:{free_port()}/").send({"id": "prod/1"})
