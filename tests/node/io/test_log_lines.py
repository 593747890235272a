"""The last lines of the log, in memory."""

import logging
import re
import threading
from collections.abc import Iterator

import pytest

from node.config.config import LogLevel
from node.io.log_lines import CHARACTERS_MAX, LINES_MAX, LogLines
from node.log.log import category_logger, process_logger


@pytest.fixture
def lines() -> Iterator[LogLines]:
    root = logging.getLogger()
    level = root.level
    root.setLevel(LogLevel.INFO)
    made = LogLines()
    made.start()
    yield made
    made.stop()
    root.setLevel(level)


def texts(lines: LogLines, after: int = 0) -> list[str]:
    return [re.sub(r"^.*?> ", "", line["text"]) for line in lines.after(after)["lines"]]


def test_a_line_as_a_file_has_it(lines: LogLines) -> None:
    process_logger("connection", 7).warning("closing\x1b[31m")
    [line] = lines.after(0)["lines"]
    assert (line["number"], line["level"]) == (1, "warning")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d [\d:.]+\+00:00 \[warning\] <0\.7\.0> closing\\x1b\[31m", line["text"]
    )


def test_only_what_is_new(lines: LogLines) -> None:
    for word in ("one", "two", "three"):
        category_logger().info(word)
    assert lines.after(0)["last"] == 3
    assert texts(lines, 2) == ["three"]
    assert lines.after(3) == {"lines": [], "last": 3}


def test_who_knows_a_process_before_gets_all(lines: LogLines) -> None:
    category_logger().info("begin")
    assert texts(lines, 500) == ["begin"]


def test_levels_are_those_of_the_log(lines: LogLines) -> None:
    category_logger().debug("too much")
    logging.getLogger().setLevel(LogLevel.DEBUG)  # as `set_log_level debug` does
    category_logger().debug("asked for")
    assert texts(lines) == ["asked for"]


def test_what_is_kept_is_bounded(lines: LogLines) -> None:
    for number in range(LINES_MAX + 5):
        category_logger().info("%d", number)
    kept = texts(lines)
    assert (len(kept), kept[0], kept[-1]) == (LINES_MAX, "5", str(LINES_MAX + 4))
    category_logger().info("x" * 100_000)
    assert len(lines.after(LINES_MAX + 5)["lines"][0]["text"]) <= CHARACTERS_MAX + 2


def test_lines_of_other_threads(lines: LogLines) -> None:
    thread = threading.Thread(target=category_logger().info, args=("from elsewhere",))
    thread.start()
    thread.join()
    assert texts(lines) == ["from elsewhere"]


def test_nothing_is_kept_after_the_end(lines: LogLines) -> None:
    lines.stop()
    lines.stop()
    category_logger().info("late")
    assert lines.after(0) == {"lines": [], "last": 0}
