"""The ledger of MQTT messages finds what is lost, doubled, out of order and of nobody."""

from tests.chaos.mqtt_ledger import MqttLedger


def ledger(qos: int, sent: int = 3) -> MqttLedger:
    made = MqttLedger(qos)
    made.subscribe("s")
    assert [made.send("p") for _ in range(sent)] == [b"p/%d" % number for number in range(1, sent + 1)]
    return made


def test_all_is_well() -> None:
    book = ledger(2)
    for number in (1, 2, 3):
        book.confirm("p", number)
        book.take("s", b"p/%d" % number)
    assert book.is_complete()
    assert book.problems() == []
    assert book.summary() == "MQTT QoS 2: 3 confirmed, lost 0, more than once 0"


def test_a_confirmed_message_that_did_not_come_is_lost() -> None:
    book = ledger(1)
    book.confirm("p", 2)
    assert not book.is_complete()
    assert book.problems() == [("lost", "MQTT QoS 1: p/2 to s")]


def test_a_message_that_was_not_confirmed_may_come_or_not() -> None:
    book = ledger(2)
    book.take("s", b"p/3")
    assert book.problems() == []


def test_a_second_copy_is_a_fault_with_qos_2_only() -> None:
    for qos, wanted in ((1, []), (2, [("duplicates", "MQTT QoS 2: p/1 to s")])):
        book = ledger(qos)
        book.take("s", b"p/1")
        book.take("s", b"p/1")
        assert book.problems() == wanted
        assert book.again("s") == ["p/1"]


def test_the_first_copies_are_in_order() -> None:
    book = ledger(1)
    for payload in (b"p/2", b"p/1", b"p/2", b"p/3", b"p/1"):
        book.take("s", payload)
    assert book.problems() == [("disorder", "MQTT QoS 1: p to s: 1 behind 2")]


def test_a_message_of_nobody() -> None:
    book = ledger(1)
    for payload in (b"p/4", b"q/1", b"p/x", b"\xff", b"p/0"):
        book.take("s", payload)
    assert [name for name, _ in book.problems()] == ["unexpected"] * 5
