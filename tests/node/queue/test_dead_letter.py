"""A dead-lettered copy carries its deaths, by which cycles are found (amqp-behaviour §5.5)."""

from typing import Any

import pytest

from node.amqp.field_table import Field, Table, array, long, longstr, table, timestamp
from node.amqp.frames import body_size, split_content
from node.amqp.properties import Properties
from node.queue.content import decode_content
from node.queue.dead_letter import Death, dead_copy, is_cycle
from node.queue.run import Envelope
from tests.kit.messages import content


def died(
    raw: bytes,
    *,
    queue: str = "q",
    reason: str = "rejected",
    exchange: str = "x",
    routing_keys: tuple[str, ...] = ("k",),
    time_s: int = 1_700_000_000,
    drops_cc: bool = False,
    channel: int = 3,
) -> tuple[Properties, Table]:
    """The properties of the copy and the headers that were returned with it."""
    copy, headers = copied(raw, queue, reason, exchange, routing_keys, time_s, drops_cc, channel)
    properties, _ = decode_content(copy)
    assert properties.headers == headers
    return properties, headers


def copied(
    raw: bytes,
    queue: str = "q",
    reason: str = "rejected",
    exchange: str = "x",
    routing_keys: tuple[str, ...] = ("k",),
    time_s: int = 1,
    drops_cc: bool = False,
    channel: int = 1,
) -> tuple[bytes, Table]:
    """The copy of a message that came with these keys, the first its own, the others from CC."""
    key, *cc = routing_keys
    envelope = Envelope(exchange, key, channel=channel, frame_max_bytes=0, cc=tuple(cc))
    death = Death("/", queue, reason, "dlx", "new key" if drops_cc else None, time_s)
    return dead_copy(raw, death, envelope)


def again(raw: bytes, **how: Any) -> bytes:
    """The content of the copy."""
    return copied(raw, **how)[0]


def deaths(headers: Table) -> list[Table]:
    found = headers["x-death"].value
    assert isinstance(found, list)
    return [entry.value for entry in found if isinstance(entry.value, dict)]


def with_headers(**headers: Field) -> bytes:
    return content(
        b"body", properties=Properties(headers={name.replace("_", "-"): f for name, f in headers.items()})
    )


def summary(headers: Table) -> list[tuple[object, object, object]]:
    """Queue, reason and count of each death."""
    return [
        tuple(entry[name].value if name in entry else None for name in ("queue", "reason", "count"))  # type: ignore[misc]
        for entry in deaths(headers)
    ]


def test_the_first_death() -> None:
    _, headers = died(content(b"body"), routing_keys=("k", "cc"))
    assert headers == {
        "x-death": array(
            [
                table(
                    {
                        "count": long(1),
                        "reason": longstr("rejected"),
                        "queue": longstr("q"),
                        "time": timestamp(1_700_000_000),
                        "exchange": longstr("x"),
                        "routing-keys": array([longstr("k"), longstr("cc")]),
                    }
                )
            ]
        ),
        "x-first-death-exchange": longstr("x"),
        "x-first-death-queue": longstr("q"),
        "x-first-death-reason": longstr("rejected"),
    }
    assert list(deaths(headers)[0]) == ["count", "reason", "queue", "time", "exchange", "routing-keys"]


def test_the_body_stays_and_comes_in_one_frame_on_its_channel() -> None:
    copy = again(content(b"abcdef" * 10, frame_max=20), channel=7)
    header, body = split_content(copy)
    assert body == b"abcdef" * 10
    assert body_size(copy) == 60
    assert copy[1:3] == b"\0\x07"
    assert len(copy) == len(header) + len(body) + 16


def test_properties_are_kept() -> None:
    kept = Properties(
        delivery_mode=2, priority=4, message_id="m", timestamp=5, user_id="u", headers={"a": longstr("b")}
    )
    properties, headers = died(content(b"", properties=kept))
    assert headers["a"] == longstr("b")
    properties.headers = kept.headers
    assert properties == kept


def test_the_expiration_moves_into_the_death() -> None:
    properties, headers = died(content(b"", properties=Properties(expiration="500")), reason="expired")
    assert properties.expiration is None
    assert deaths(headers)[0]["original-expiration"] == longstr("500")


@pytest.mark.parametrize("drops", [False, True])
def test_cc_goes_with_a_dead_letter_routing_key(drops: bool) -> None:
    _, headers = died(with_headers(CC=array([longstr("c")])), drops_cc=drops)
    assert ("CC" in headers) is not drops


def test_the_same_place_counts_up_and_keeps_its_first_time() -> None:
    raw = again(content(b""), time_s=5)
    _, headers = died(raw, time_s=9, exchange="other", routing_keys=("other",))
    (entry,) = deaths(headers)
    assert (entry["count"], entry["time"], entry["exchange"]) == (long(2), timestamp(5), longstr("x"))
    assert entry["routing-keys"] == array([longstr("k")])
    assert list(entry) == sorted(entry)


def test_another_place_comes_in_front() -> None:
    raw = again(again(content(b""), queue="one"), queue="two", reason="expired")
    _, headers = died(raw, queue="one")
    assert summary(headers) == [(b"one", b"rejected", 2), (b"two", b"expired", 1)]
    assert headers["x-first-death-queue"] == longstr("one")


def test_the_same_queue_for_another_reason_is_another_place() -> None:
    _, headers = died(again(content(b""), reason="expired"))
    assert summary(headers) == [(b"q", b"rejected", 1), (b"q", b"expired", 1)]


# --- what clients put there -------------------------------------------------------------------------------


def test_an_x_death_that_is_no_array_is_replaced() -> None:
    """§5.5: replaced by a fresh one, x-first-death not added."""
    _, headers = died(with_headers(x_death=longstr("mine")))
    assert summary(headers) == [(b"q", b"rejected", 1)]
    assert list(headers) == ["x-death"]


def test_duplicates_without_a_count_are_counted() -> None:
    """§5.5: missing count = number of duplicates."""
    entry = table({"queue": longstr("q"), "reason": longstr("rejected")})
    _, headers = died(with_headers(x_death=array([entry, entry, entry])))
    assert summary(headers) == [(b"q", b"rejected", 4)]


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(table({}), id="empty"),
        pytest.param(table({"queue": array([]), "reason": table({})}), id="unhashable place"),
        pytest.param(table({"queue": Field("V", None), "reason": Field("t", True)}), id="odd place"),
        pytest.param(longstr("text"), id="no table"),
        pytest.param(array([table({})]), id="nested"),
    ],
)
def test_odd_entries_do_no_harm(entry: Field) -> None:
    _, headers = died(with_headers(x_death=array([entry])))
    assert summary(headers)[0] == (b"q", b"rejected", 1)
    assert not is_cycle("other", headers)


@pytest.mark.parametrize(
    ("count", "counted"),
    [
        (long(2**63 - 1), 2**63 - 1),
        (Field("T", 2**64 - 1), 2**63 - 1),
        (Field("i", 7), 8),
        (long(-5), -4),
        (longstr("many"), 1),
    ],
)
def test_any_count_can_be_counted_up(count: Field, counted: int) -> None:
    entry = table({"queue": longstr("q"), "reason": longstr("rejected"), "count": count})
    _, headers = died(with_headers(x_death=array([entry])))
    assert summary(headers) == [(b"q", b"rejected", counted)]
    assert deaths(headers)[0]["count"].tag == "l"


def test_a_queue_name_that_is_not_utf_8() -> None:
    name = b"\xff".decode("utf-8", "surrogateescape")
    _, headers = died(content(b""), queue=name, reason="expired")
    assert is_cycle(name, headers)


# --- cycles -----------------------------------------------------------------------------------------------


def history(*places: tuple[str, str]) -> Table:
    """Headers with deaths at these places, newest first."""
    return {
        "x-death": array(
            [table({"queue": longstr(queue), "reason": longstr(reason)}) for queue, reason in places]
        )
    }


@pytest.mark.parametrize(
    ("places", "cycle"),
    [
        ([], False),
        ([("r", "expired")], True),
        ([("other", "expired"), ("r", "maxlen")], True),
        ([("other", "expired")], False),
        ([("other", "rejected"), ("r", "expired")], False),
        ([("r", "rejected")], False),
        ([("r", "expired"), ("other", "rejected")], True),
        ([("other", "expired"), ("third", "rejected"), ("r", "expired")], False),
    ],
)
def test_a_cycle_is_one_that_no_client_took_part_in(places: list[tuple[str, str]], cycle: bool) -> None:
    """§5.5: R is there, and no entry from the newest back to R's has the reason `rejected`."""
    assert is_cycle("r", history(*places)) is cycle


def test_without_deaths_there_is_no_cycle() -> None:
    assert not is_cycle("r", {})
    assert not is_cycle("r", {"x-death": longstr("r")})
