"""The ledger of STOMP messages tells what was lost and what nobody sent."""

from tests.chaos.stomp_ledger import StompLedger


def test_a_message_with_a_receipt_has_to_come() -> None:
    ledger = StompLedger()
    bodies = [ledger.send("p") for _ in range(3)]
    assert bodies == [b"p/1", b"p/2", b"p/3"]
    ledger.confirm(bodies[0])
    ledger.confirm(bodies[1])
    ledger.take(bodies[1])
    ledger.take(bodies[1])
    assert ledger.problems() == [("lost", "STOMP: p/1")]
    assert ledger.summary() == "STOMP: 2 messages with receipts, lost 1, came again 1"
    ledger.take(bodies[0])
    ledger.take(bodies[2])
    assert ledger.problems() == [], "one without a receipt may come"


def test_what_nobody_sent_is_a_fault() -> None:
    ledger = StompLedger()
    ledger.send("p")
    for body in (b"p/2", b"q/1", b"p/0", b"nonsense", b"\xff/1"):
        ledger.take(body)
    assert [name for name, _ in ledger.problems()] == ["unexpected"] * 5
