"""This module writes log lines in RabbitMQ's format: `2026-11-21 09:16:11.740356+00:00 [info] <0.2088.0> message`.

Every line goes through `logging`: `category_logger("connection")` for lines without an owner,
`process_logger` for those of one connection, which carry its number where RabbitMQ has an Erlang pid. The
lines of a message after its first repeat the prefix. Every name that a client may have chosen is made harmless by
`escape` before it becomes part of a message (`node.log.phrases` does that); the formatters escape every
control character but the line feed once more.

The terminal or the disk may stall, the event loop may not: lines are handed to a thread over a bounded queue.
When the queue is full lines are dropped, and the next one that fits is preceded by how many. Source:
management §6.3.
"""

import json
import logging
import logging.handlers
import queue
import sys
import threading
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO, Any, Final

from node.config.config import FileLog, LogFormat, LogLevel, LogOptions

ROOT: Final = "fluffle"
QUEUE_LINES_MAX: Final = 10_000
"""The most lines between the loop and the writer: some megabytes, or seconds of the worst storm of connections."""
_LEVELS_REMEMBERED: Final = 64
"""The numbers of levels whose names are remembered: Python's and RabbitMQ's are 13, libraries may have own ones."""
NODE_PROCESS: Final = "<0.0.0>"
"""The tag of lines that belong to no connection; connections count from 1."""

_COLORS: Final = {
    LogLevel.DEBUG: "\033[38;5;246m",
    LogLevel.NOTICE: "\033[38;5;87m",
    LogLevel.WARNING: "\033[38;5;214m",
    LogLevel.ERROR: "\033[38;5;160m",
    LogLevel.CRITICAL: "\033[1;37m\033[48;5;20m",
    LogLevel.ALERT: "\033[1;37m\033[48;5;93m",
    LogLevel.EMERGENCY: "\033[1;37m\033[48;5;196m",
}
_SHORT_NAMES: Final = {
    LogLevel.DEBUG: ("dbg", "dbug"),
    LogLevel.INFO: ("inf", "info"),
    LogLevel.NOTICE: ("ntc", "noti"),
    LogLevel.WARNING: ("wrn", "warn"),
    LogLevel.ERROR: ("err", "erro"),
    LogLevel.CRITICAL: ("crt", "crit"),
    LogLevel.ALERT: ("alt", "alrt"),
    LogLevel.EMERGENCY: ("emg", "emgc"),
}
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of control and format characters (bidirectional overrides), bytes that were no UTF-8, and line
separators.
"""


def escape(text: str) -> str:
    r"""`text` on one line, with nothing that a terminal would obey: `\n`, `\x1b`, `\u202e` are spelt out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _UNSAFE_CATEGORIES else c for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # one byte that `surrogateescape` kept
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def process_tag(number: int) -> str:
    """Return the text that stands for an Erlang pid in lines and listings."""
    return f"<0.{number}.0>"


def category_logger(category: str = "default") -> logging.Logger:
    """Return the logger of one of RabbitMQ's categories; its lines carry the node's tag."""
    return logging.getLogger(ROOT if category == "default" else f"{ROOT}.{category}")


ProcessLogger = logging.LoggerAdapter[logging.Logger]


def process_logger(category: str, number: int) -> ProcessLogger:
    """Return the logger of one connection or other numbered object: its lines carry the number."""
    return logging.LoggerAdapter(category_logger(category), {"pid": process_tag(number)})


def level_of(record: logging.LogRecord) -> LogLevel:
    """Return the highest of RabbitMQ's levels that is not above the record's."""
    return _level_of(record.levelno)


@lru_cache(_LEVELS_REMEMBERED)
def _level_of(number: int) -> LogLevel:
    return max((level for level in _SHORT_NAMES if level <= number), default=LogLevel.DEBUG)


class _Formatter(logging.Formatter):
    """The common part of the plain and the JSON form."""

    def __init__(self, options: LogFormat) -> None:
        super().__init__()
        self.options = options

    def message(self, record: logging.LogRecord) -> str:
        lines = super().format(record).split("\n")
        if self.options.single_line:
            return ", ".join(escape(line.strip()) for line in lines if line.strip())
        return "\n".join(map(escape, lines))

    def time(self, record: logging.LogRecord) -> str:
        if self.options.time_format == "epoch_usecs":
            return str(round(record.created * 1_000_000))
        if self.options.time_format == "epoch_secs":
            return f"{record.created:.6f}"
        separator = "T" if self.options.time_format == "rfc3339_T" else " "
        return datetime.fromtimestamp(record.created, UTC).isoformat(separator, "microseconds")

    def level(self, record: logging.LogRecord) -> str:
        level = level_of(record)
        style = self.options.level_format
        name = _SHORT_NAMES[level][int(style[2]) - 3] if style[2:] else level.name.lower()
        return name.upper() if style.startswith("uc") else name


class PlainFormatter(_Formatter):
    """The formatter of lines `time [level] pid text`; each further line of a message repeats the prefix."""

    def __init__(self, options: LogFormat, *, colors: bool = False) -> None:
        super().__init__(options)
        self.colors = colors

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"{self.time(record)} [{self.level(record)}] {getattr(record, 'pid', NODE_PROCESS)} "
        lines = [(prefix + line).rstrip(" ") for line in self.message(record).split("\n")]
        color = _COLORS.get(level_of(record)) if self.colors else None
        if color:
            lines = [f"{color}{line}\033[0m" for line in lines]
        return "\n".join(lines)


class JsonFormatter(_Formatter):
    """The formatter of one JSON object a line, with those of RabbitMQ's keys that readers of logs use."""

    def format(self, record: logging.LogRecord) -> str:
        category = record.name.rpartition(".")[2] if record.name.startswith(f"{ROOT}.") else "default"
        numeric = self.options.time_format.startswith("epoch")
        time = self.time(record)
        return json.dumps(
            {
                "time": float(time) if numeric and "." in time else int(time) if numeric else time,
                "level": self.level(record),
                "msg": self.message(record),
                "domain": f"rabbitmq.{category}",
                "file": record.filename,
                "line": record.lineno,
                "pid": getattr(record, "pid", NODE_PROCESS),
            }
        )


class _CategoryFilter(logging.Filter):
    """The filter that lets a record pass by its category's level, or by the output's if the category has none."""

    def __init__(self, output: LogLevel, categories: Mapping[str, LogLevel]) -> None:
        super().__init__()
        self.output = output
        self.levels = {f"{ROOT}.{category}": level for category, level in categories.items()}

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self.levels.get(record.name, self.output)


class _Entrance(logging.handlers.QueueHandler):
    """The loop's end of the queue: it never waits, and counts the lines that do not fit."""

    def __init__(
        self, lines: "queue.Queue[logging.LogRecord | None]", outputs: Sequence[logging.Handler]
    ) -> None:
        super().__init__(lines)
        self.lines = lines
        self.outputs = outputs
        self.dropped_count = 0

    def prepare(self, record: logging.LogRecord) -> Any:
        """Return what the writer's thread can format: the record itself, if no later change can reach its text."""
        if record.args or record.exc_info or record.stack_info or not isinstance(record.msg, str):
            return super().prepare(record)
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self.dropped_count:
                text = f"{self.dropped_count} log lines were dropped: the log's reader is too slow"
                self.lines.put_nowait(
                    logging.LogRecord(
                        ROOT, LogLevel.WARNING, record.pathname, record.lineno, text, None, None
                    )
                )
                self.dropped_count = 0
            self.lines.put_nowait(record)
        except queue.Full:
            self.dropped_count += 1


class LogWriter:
    """The outputs of one node's log, and the thread that writes them."""

    def __init__(self, outputs: list[logging.Handler]) -> None:
        self.outputs = outputs
        self._lines: queue.Queue[logging.LogRecord | None] = queue.Queue(QUEUE_LINES_MAX)
        self.entrance = _Entrance(self._lines, outputs)
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while (record := self._lines.get()) is not None:
            for output in self.outputs:
                output.handle(record)

    def stop(self, timeout_s: float = 2.0) -> bool:
        """Write the lines that wait, and end the thread.

        Returns: False when an output is stuck. Python's own exit would then wait for it without end.
        """
        logging.getLogger().removeHandler(self.entrance)
        try:
            self._lines.put(None, timeout=timeout_s)
        except queue.Full:
            return False
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        for output in self.outputs:
            output.close()
        return True


def set_level(level: LogLevel) -> None:
    """Set the level of all outputs; categories with a level of their own keep it."""
    root = logging.getLogger()
    root.setLevel(level)
    outputs = [output for each in root.handlers if isinstance(each, _Entrance) for output in each.outputs]
    for output in outputs:
        for each in output.filters:
            if isinstance(each, _CategoryFilter):
                each.output = level


def configure(
    options: LogOptions, *, stdout: IO[str] | None = None, stderr: IO[str] | None = None
) -> LogWriter:
    """Send all log lines of this process to the outputs in `options`. Raises: OSError of the file."""
    outputs: list[logging.Handler] = []
    if options.console is not None:
        console = options.console
        stream = (stdout or sys.stdout) if console.stream == "stdout" else (stderr or sys.stderr)
        outputs.append(
            prepared(logging.StreamHandler(stream), console.format, console.level, options, console.colors)
        )
    if options.file is not None:
        outputs.append(
            prepared(_file_handler(options.file), options.file.format, options.file.level, options)
        )
    for level in LogLevel:
        logging.addLevelName(level, level.name)
    writer = LogWriter(outputs)
    root = logging.getLogger()
    root.addHandler(writer.entrance)
    root.setLevel(
        min(
            (output.level for output in (options.console, options.file, options.exchange) if output),
            default=LogLevel.NONE,
        )
    )
    for category, level in options.category_levels.items():
        category_logger(category).setLevel(level)
    return writer


def prepared(
    handler: logging.Handler, form: LogFormat, level: LogLevel, options: LogOptions, colors: bool = False
) -> logging.Handler:
    """Return the handler with the form and the level of its output.   options: levels of categories."""
    handler.setFormatter(JsonFormatter(form) if form.json else PlainFormatter(form, colors=colors))
    handler.addFilter(_CategoryFilter(level, options.category_levels))
    return handler


def _file_handler(file: FileLog) -> logging.Handler:
    if file.rotation_bytes:
        return logging.handlers.RotatingFileHandler(
            file.path,
            maxBytes=file.rotation_bytes,
            backupCount=file.rotation_count,
            encoding="utf-8",
        )
    return logging.handlers.WatchedFileHandler(file.path, encoding="utf-8")
