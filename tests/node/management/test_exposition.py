"""The text format of Prometheus, held against its own parser."""

import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from node.management.exposition import PIECE_CHARACTERS, Exposition, Metric, labelled, number

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def rows(out: Exposition) -> list[tuple[str, dict[str, str], float]]:
    text = b"".join(out.pieces()).decode()
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def test_types_and_rows() -> None:
    out = Exposition()
    out.add(Metric("a_total", "counter", "What it is"), "x_", 3)
    out.add(Metric("b", "gauge", "Another"), "x_", 0.5, labelled({"l": "v"}))
    out.add(Metric("a_total", "counter", "What it is"), "x_", 4, labelled({"l": "w"}))
    assert b"".join(out.pieces()).decode() == (
        "# TYPE x_a_total counter\n# HELP x_a_total What it is\nx_a_total 3\n"
        'x_a_total{l="w"} 4\n# TYPE x_b gauge\n# HELP x_b Another\nx_b{l="v"} 0.5\n'
    )


@given(TEXT.filter(lambda text: "\r" not in text and text.splitlines() in ([], [text])))
def test_any_label_is_read_back(value: str) -> None:
    out = Exposition()
    out.add(Metric("a", "gauge", "x"), "", 1, labelled({"queue": value, "vhost": "/"}))
    assert rows(out) == [("a", {"queue": value, "vhost": "/"}, 1)]


@given(TEXT)
def test_no_label_makes_a_row_of_its_own(value: str) -> None:
    out = Exposition()
    out.add(Metric("a", "gauge", "x"), "", 1, labelled({"queue": value}))
    text = b"".join(out.pieces()).decode()
    assert text.count("\n") == 3


def test_numbers() -> None:
    cases: list[tuple[Any, str]] = [
        (True, "1"),
        (0, "0"),
        (10**20, "1" + "0" * 20),
        (0.25, "0.25"),
        (float("nan"), "NaN"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
    ]
    assert [number(value) for value, _ in cases] == [text for _, text in cases]


def test_long_families_come_in_pieces() -> None:
    out, line = Exposition(), 'a{n="1"} 1'
    count = 2 * PIECE_CHARACTERS // len(line)
    lines = out.begin(Metric("a", "gauge", "x"), "")
    lines += [line] * count
    pieces = list(out.pieces())
    assert len(pieces) in (2, 3)
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert b"".join(pieces).count(b"\n") == count + 2
    assert list(out.pieces()) == []


def test_folded_lines_are_the_same_text() -> None:
    texts = []
    for every in (0, 7, 100):
        out = Exposition()
        for number_ in range(1000):
            for name in "ab":
                out.add(Metric(name, "gauge", "x"), "", number_, labelled({"n": str(number_)}))
            if every and number_ % every == 0:
                out.fold()
        texts.append(b"".join(out.pieces()))
    assert texts[0] == texts[1] == texts[2]


def test_a_page_that_is_folded_takes_little_more_than_its_text() -> None:
    """Rows of 20 metrics of 2,000 queues, gathered and then given away piece by piece."""
    out = Exposition()
    tracemalloc.start()
    for queue in range(2000):
        labels = labelled({"vhost": "/", "queue": f"queue.{queue:05d}"})
        for metric in range(20):
            out.add(Metric(f"queue_metric_of_something_{metric}", "gauge", "x"), "rabbitmq_", queue, labels)
        if queue % 256 == 255:
            out.fold()
    size = sum(map(len, out.pieces()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.4 * size
