"""Log lines in RabbitMQ's format (management §6.3)."""

import inspect
import io
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.amqp.constants import ReplyCode
from node.config.config import ConsoleLog, FileLog, LogFormat, LogLevel, LogOptions
from node.log import log, phrases
from node.log import mirroring as log_mirroring
from node.log.log import JsonFormatter, PlainFormatter, escape

CREATED = 1795252571.740356  # 2026-11-21 09:16:11.740356 UTC
PREFIX = "2026-11-21 09:16:11.740356+00:00 [info] <0.2088.0> "
EVIL = "x\n2026-11-21 09:16:11.740356+00:00 [info] <0.1.0> accepting\x1b[2J\u202e\u2028\x7f\x9b"


def record(
    text: str, level: int = LogLevel.INFO, pid: str | None = "<0.2088.0>", name: str = "fluffle"
) -> logging.LogRecord:
    made = logging.LogRecord(name, level, "some/file.py", 12, text, None, None)
    made.created = CREATED
    if pid is not None:
        made.pid = pid
    return made


def plain(text: str, form: LogFormat | None = None, level: int = LogLevel.INFO, colors: bool = False) -> str:
    return PlainFormatter(form or LogFormat(), colors=colors).format(record(text, level))


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    yield
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, log._Entrance):
            root.removeHandler(handler)
    root.setLevel(logging.WARNING)
    for name in ("", "connection", "channel", "queue"):
        log.category_logger(name or "default").setLevel(logging.NOTSET)


# ---- the line ----


def test_the_line() -> None:
    assert plain("message") == f"{PREFIX}message"


def test_continuation_lines_repeat_the_prefix() -> None:
    assert plain("\n a\n b") == f"{PREFIX.rstrip()}\n{PREFIX} a\n{PREFIX} b"


def test_a_line_without_owner_is_the_nodes() -> None:
    assert " <0.0.0> x" in PlainFormatter(LogFormat()).format(record("x", pid=None))


@pytest.mark.parametrize(
    ("level", "name"),
    [
        (logging.DEBUG, "debug"),
        (logging.INFO, "info"),
        (LogLevel.NOTICE, "notice"),
        (logging.WARNING, "warning"),
        (logging.ERROR, "error"),
        (logging.CRITICAL, "critical"),
        (LogLevel.ALERT, "alert"),
        (LogLevel.EMERGENCY, "emergency"),
        (5, "debug"),
        (27, "notice"),
    ],
)
def test_level_names(level: int, name: str) -> None:
    assert f" [{name}] " in plain("x", level=level)


@pytest.mark.parametrize(
    ("style", "info", "warning"),
    [
        ("lc", "info", "warning"),
        ("uc", "INFO", "WARNING"),
        ("lc3", "inf", "wrn"),
        ("uc3", "INF", "WRN"),
        ("lc4", "info", "warn"),
        ("uc4", "INFO", "WARN"),
    ],
)
def test_level_formats(style: str, info: str, warning: str) -> None:
    form = LogFormat(level_format=style)  # type: ignore[arg-type]
    assert f" [{info}] " in plain("x", form)
    assert f" [{warning}] " in plain("x", form, LogLevel.WARNING)


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("rfc3339_space", "2026-11-21 09:16:11.740356+00:00"),
        ("rfc3339_T", "2026-11-21T09:16:11.740356+00:00"),
        ("epoch_usecs", "1795252571740356"),
        ("epoch_secs", "1795252571.740356"),
    ],
)
def test_time_formats(style: str, expected: str) -> None:
    form = LogFormat(time_format=style)  # type: ignore[arg-type]
    assert plain("x", form).startswith(f"{expected} [info]")
    assert str(json.loads(JsonFormatter(form).format(record("x")))["time"]) == expected


def test_single_line() -> None:
    assert plain("\n a\n  b\n", LogFormat(single_line=True)) == f"{PREFIX}a, b"


def test_colors() -> None:
    assert plain("x", level=LogLevel.ERROR, colors=True).startswith("\033[38;5;160m2026")
    assert plain("x", level=LogLevel.ERROR, colors=True).endswith("x\033[0m")
    assert plain("x", colors=True) == f"{PREFIX}x"


def test_json() -> None:
    line = JsonFormatter(LogFormat(json=True)).format(record("a\nb", LogLevel.NOTICE, name="fluffle.channel"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-11-21 09:16:11.740356+00:00",
        "level": "notice",
        "msg": "a\nb",
        "pid": "<0.2088.0>",
        "domain": "rabbitmq.channel",
        "file": "file.py",
        "line": 12,
    }


# ---- nothing can be forged ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain 'text' \\ é 兔", "plain 'text' \\ é 兔"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[31m\x00\x7f", "\\x1b[31m\\x00\\x7f"),
        ("\x9b", "\\x9b"),
        ("\u2028\u2029\u202e\u200b", "\\u2028\\u2029\\u202e\\u200b"),
        (b"\xff\xfe".decode("utf-8", "surrogateescape"), "\\xff\\xfe"),
    ],
)
def test_escape(text: str, expected: str) -> None:
    assert escape(text) == expected


@given(st.text(st.characters(codec=None), max_size=50))
def test_what_is_escaped_is_one_printable_line_that_can_be_encoded(text: str) -> None:
    escaped = escape(text)
    escaped.encode("utf-8")
    assert len(escaped.splitlines()) <= 1
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in escaped)
    assert escape(escaped) == escaped


def test_a_formatter_lets_no_control_character_through() -> None:
    assert plain("a\x1b[2Jb") == f"{PREFIX}a\\x1b[2Jb"


PHRASES = [
    function
    for module in (phrases, log_mirroring)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
]
NOT_LOGGED_BY_THEMSELVES = {"login_refused"}


def arguments(function: object, text: str) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, parameter in inspect.signature(function).parameters.items():  # type: ignore[arg-type]
        kind = str(parameter.annotation)
        if name in ("pid", "state", "method", "field", "mechanism") or "Literal" in kind:
            values[name] = name
        elif "Sequence" in kind:
            values[name] = [text]
        elif "ReplyCode" in kind:
            values[name] = ReplyCode.NOT_FOUND
        elif "bytes" in kind:
            values[name] = text.encode()
        elif "bool" in kind:
            values[name] = True
        elif "str" in kind:
            values[name] = text
        else:
            values[name] = 7
    return values


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda function: function.__name__)
def test_no_name_can_forge_a_line(phrase: object) -> None:
    """A hostile text gives as many lines as a harmless one, and none that a terminal obeys."""
    assert callable(phrase)
    if phrase.__name__ in NOT_LOGGED_BY_THEMSELVES:  # parts, escaped by the phrase that takes them
        pytest.skip("a part of another phrase")
    harmless, hostile = (phrase(**arguments(phrase, text)) for text in ("bob", EVIL))
    assert hostile.count("\n") == harmless.count("\n")
    assert not set(hostile) & set("\x1b\u202e\u2028\x7f\x9b")


# ---- phrases ----

PID = "<0.9.0>"
NAME = "127.0.0.1:1 -> 127.0.0.1:5672"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (phrases.accepting(PID, NAME), f"accepting AMQP connection {PID} ({NAME})"),
        (
            phrases.authenticated(PID, f"{NAME} - app", "guest", "mgt"),
            f"connection {PID} ({NAME} - app): user 'guest' authenticated and granted access to vhost 'mgt'",
        ),
        (
            phrases.closing(PID, NAME, "mgt", "guest"),
            f"closing AMQP connection {PID} ({NAME}, vhost: 'mgt', user: 'guest')",
        ),
        (
            phrases.closed_abruptly(PID, NAME),
            f"closing AMQP connection {PID} ({NAME}):\nclient unexpectedly closed TCP connection",
        ),
        (
            phrases.missed_heartbeats(PID, NAME, 60),
            f"closing AMQP connection {PID} ({NAME}):\nmissed heartbeats from client, timeout: 60s",
        ),
        (
            phrases.logged_in("guest"),
            "User 'guest' authenticated successfully by backend rabbit_auth_backend_internal",
        ),
        (
            phrases.login_error(
                PID, NAME, phrases.login_refused("PLAIN", "user 'guest' - invalid credentials")
            ),
            f"Error on AMQP connection {PID} ({NAME}, state: starting):\n"
            "PLAIN login refused: user 'guest' - invalid credentials",
        ),
        (
            phrases.connection_exception(
                PID,
                NAME,
                "/",
                "guest",
                "running",
                3,
                ReplyCode.COMMAND_INVALID,
                "unknown exchange type 'T'",
                "exchange.declare",
            ),
            f"Error on AMQP connection {PID} ({NAME}, vhost: '/', user: 'guest', state: running), "
            "channel 3:\n operation exchange.declare caused a connection exception command_invalid: "
            "\"unknown exchange type 'T'\"",
        ),
        (
            phrases.channel_exception(
                PID, NAME, "/", "guest", 1, ReplyCode.PRECONDITION_FAILED, "inequivalent arg", "queue.declare"
            ),
            f"Channel error on connection {PID} ({NAME}, vhost: '/', user: 'guest'), channel 1:\n"
            "operation queue.declare caused a channel exception precondition_failed: inequivalent arg",
        ),
        (
            phrases.handshake_timeout(PID, NAME, "handshake"),
            f"closing AMQP connection {PID} ({NAME}):\n{{handshake_timeout,handshake}}",
        ),
        (phrases.will_seed(), "Will seed default virtual host and user..."),
        (phrases.vhost_added("x"), "Adding vhost 'x' without a description"),
        (
            phrases.vhost_added("/", "Default virtual host"),
            "Adding vhost '/' (description: 'Default virtual host', tags: [])",
        ),
        (phrases.user_created("x"), "Created user 'x'"),
        (
            phrases.consumer_timeout("T", 2, 1800000),
            "Consumer T on channel 2 has timed out waiting for delivery acknowledgement. "
            "Timeout used: 1800000 ms. "
            "This timeout value can be configured, see consumers doc guide to learn more",
        ),
        (phrases.startup_complete(()), "Server startup complete; 0 plugins started."),
        (
            phrases.startup_complete(["rabbitmq_management", "rabbitmq_web_dispatch"]),
            "Server startup complete; 2 plugins started.\n * rabbitmq_web_dispatch\n * rabbitmq_management",
        ),
        (phrases.file_handles(927, 832), "Limiting to approx 927 file handles (832 sockets)"),
        (
            phrases.alarm_set("rabbit@h", "memory"),
            "memory resource limit alarm set on node 'rabbit@h'.\n\n"
            "**********************************************************\n"
            "*** Publishers will be blocked until this alarm clears ***\n"
            "**********************************************************\n",
        ),
        (
            phrases.alarm_cleared("rabbit@h", "disk"),
            "disk resource limit alarm cleared on node 'rabbit@h'",
        ),
        (
            phrases.alarm_cleared_everywhere("disk"),
            "disk resource limit alarm cleared across the cluster",
        ),
        (
            phrases.memory_limit(10110604083, 25276510208),
            "Memory high watermark set to 9642 MiB (10110604083 bytes) of 24105 MiB (25276510208 bytes) total",
        ),
        (
            phrases.memory_high(148332544, 1000),
            "vm_memory_high_watermark set. Memory used:148332544 allowed:1000",
        ),
        (
            phrases.memory_normal(1000, 2000),
            "vm_memory_high_watermark clear. Memory used:1000 allowed:2000",
        ),
        (phrases.disk_limit(50_000_000), "Disk free limit set to 50MB"),
        (
            phrases.disk_low(83685478400, 10**18),
            "Free disk space is insufficient. Free bytes: 83685478400. Limit: 1000000000000000000",
        ),
        (
            phrases.disk_enough(83685470208, 50000000),
            "Free disk space is sufficient. Free bytes: 83685470208. Limit: 50000000",
        ),
        (
            phrases.store_rebuilding("a/msg_store_persistent"),
            'Message store "a/msg_store_persistent": rebuilding indices from scratch',
        ),
        (phrases.queues_recovered(2, 7), "Recovering 2 queues of type rabbit_classic_queue took 7ms"),
        (
            phrases.policy_set("ha", "queues", "/", "^ha"),
            "Successfully set policy 'ha' matching queues names in virtual host '/' using pattern '^ha'",
        ),
        (
            log_mirroring.rebalance_started("all", ".*", ".*"),
            "Starting queue rebalance operation: 'all' for vhosts matching '.*' and queues matching '.*'",
        ),
        (log_mirroring.balanced(), "All queue masters are balanced"),
        (log_mirroring.rebalanced(), "Finished queue rebalance operation"),
        (
            log_mirroring.transferring(2, ["b@h", "c@h"]),
            "Will transfer leadership of 2 classic mirrored queues hosted on this node "
            "to these peer nodes: b@h, c@h",
        ),
        (
            log_mirroring.transferred(),
            "Leadership transfer for local classic mirrored queues is complete",
        ),
        (phrases.store_stopping("/d"), "Stopping message store for directory '/d'"),
        (phrases.store_stopped("/d"), "Message store for directory '/d' is stopped"),
        (
            phrases.settings("rabbit@h", ["/a", "/b"], [], "/d"),
            "\n node           : rabbit@h\n config file(s) : /a\n                : /b\n"
            " log(s)         : (none)\n database dir   : /d",
        ),
    ],
)
def test_phrase(text: str, expected: str) -> None:
    """management §6.3, and the format strings of RabbitMQ 3.10.8."""
    assert text == expected


# ---- outputs ----


def written(options: LogOptions, stream: io.StringIO) -> log.LogWriter:
    return log.configure(options, stdout=stream, stderr=stream)


def test_a_connections_lines_carry_its_number() -> None:
    stream = io.StringIO()
    writer = written(LogOptions(), stream)
    log.process_logger("connection", 12).info("hello")
    log.category_logger("connection").info("node's own")
    assert writer.stop()
    first, second = stream.getvalue().splitlines()
    assert first.endswith(" [info] <0.12.0> hello")
    assert second.endswith(" [info] <0.0.0> node's own")


def test_a_category_has_its_own_level_up_or_down() -> None:
    stream = io.StringIO()
    levels = {"connection": LogLevel.DEBUG, "channel": LogLevel.ERROR}
    writer = written(LogOptions(category_levels=levels), stream)
    for category in ("default", "connection", "channel", "queue"):
        for level in (LogLevel.DEBUG, LogLevel.INFO, LogLevel.ERROR):
            log.category_logger(category).log(level, "%s-%s", category, level.name)
    assert writer.stop()
    assert [line.rpartition(" ")[2] for line in stream.getvalue().splitlines()] == [
        "default-INFO",
        "default-ERROR",
        "connection-DEBUG",
        "connection-INFO",
        "connection-ERROR",
        "channel-ERROR",
        "queue-INFO",
        "queue-ERROR",
    ]


def test_level_none_is_silence() -> None:
    stream = io.StringIO()
    writer = written(LogOptions(ConsoleLog(level=LogLevel.NONE)), stream)
    log.category_logger().critical("x")
    assert writer.stop()
    assert stream.getvalue() == ""


def test_stdout_and_stderr() -> None:
    for name in ("stdout", "stderr"):
        streams = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        writer = log.configure(LogOptions(ConsoleLog(name)), **streams)  # type: ignore[arg-type]
        log.category_logger().info("x")
        assert writer.stop()
        assert [key for key, stream in streams.items() if stream.getvalue()] == [name]


def test_a_traceback_is_part_of_the_message() -> None:
    stream = io.StringIO()
    writer = written(LogOptions(), stream)
    try:
        raise ValueError("a\x1bb")
    except ValueError:
        log.category_logger().exception("failed")
    assert writer.stop()
    lines = stream.getvalue().splitlines()
    assert all("[error] <0.0.0>" in line for line in lines)
    assert lines[-1].endswith("ValueError: a\\x1bb")


def test_a_file_beside_the_console(tmp_path: Path) -> None:
    stream, path = io.StringIO(), tmp_path / "rabbit@h.log"
    file = FileLog(str(path), level=LogLevel.ERROR, format=LogFormat(json=True))
    writer = written(LogOptions(file=file), stream)
    log.category_logger().info("é")
    log.category_logger().error("兔")
    assert writer.stop()
    assert [line.rpartition(" ")[2] for line in stream.getvalue().splitlines()] == ["é", "兔"]
    assert [json.loads(line)["msg"] for line in path.read_text("utf-8").splitlines()] == ["兔"]


def test_a_file_turns_over(tmp_path: Path) -> None:
    file = FileLog(str(tmp_path / "x.log"), rotation_bytes=200, rotation_count=2)
    writer = log.configure(LogOptions(None, file))
    for number in range(20):
        log.category_logger().info("line %d", number)
    assert writer.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.log", "x.log.1", "x.log.2"]
    assert all(path.stat().st_size <= 200 for path in tmp_path.iterdir())


class Stalled(io.StringIO):
    """A terminal that was stopped: the first write waits until `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        self.go.wait(10)
        return super().write(text)


def test_a_stalled_reader_costs_lines_and_never_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "QUEUE_LINES_MAX", 5)
    stream = Stalled()
    writer = written(LogOptions(), stream)
    log.category_logger().info("held by the writer")
    assert stream.entered.wait(10)
    for number in range(50):
        log.category_logger().info("%d", number)
    assert writer.entrance.dropped_count == 45
    assert not writer.stop(timeout_s=0.01)
    stream.go.set()


def test_a_line_says_what_was_so_when_it_was_logged() -> None:
    """A line keeps its values, even if the thread that writes it comes to it later."""
    stream = Stalled()
    writer = written(LogOptions(), stream)
    log.category_logger().info("held by the writer")
    assert stream.entered.wait(10)
    names = ["a"]
    log.category_logger().info("%s", names)
    log.category_logger().info(names)
    log.process_logger("connection", 7).info("100%s of it")
    names.append("b")
    stream.go.set()
    assert writer.stop()
    lines = [line.partition("[info] ")[2] for line in stream.getvalue().splitlines()]
    assert lines[1:] == ["<0.0.0> ['a']", "<0.0.0> ['a']", "<0.7.0> 100%s of it"]


def test_the_next_line_that_fits_tells_how_many_were_dropped() -> None:
    stream = io.StringIO()
    writer = written(LogOptions(), stream)
    writer.entrance.dropped_count = 3
    log.category_logger().info("x")
    assert writer.stop()
    first, second = stream.getvalue().splitlines()
    assert first.endswith("[warning] <0.0.0> 3 log lines were dropped: the log's reader is too slow")
    assert second.endswith(" x")
    assert writer.entrance.dropped_count == 0


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        log.configure(LogOptions(None, FileLog(str(tmp_path / "no" / "x.log"))))


def test_the_level_can_change_while_the_node_runs() -> None:
    """`set_log_level`: also to a lower one; categories keep theirs."""
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.level
    options = LogOptions(ConsoleLog("stderr"), category_levels={"connection": LogLevel.ERROR})
    writer = log.configure(options, stderr=stream)
    try:
        log.category_logger().debug("before")
        log.set_level(LogLevel.DEBUG)
        log.category_logger().debug("after")
        log.category_logger("connection").info("still not")
    finally:
        assert writer.stop()
        root.setLevel(before)
    assert "after" in stream.getvalue()
    assert "before" not in stream.getvalue()
    assert "still not" not in stream.getvalue()
