"""The report of two sites is clean only if something was compared and everything is accounted for."""

import json

from tests.chaos.report import FaultRecord
from tests.chaos.sites_ledger import Account, SitesLedger
from tests.chaos.sites_report import SitesReport, row


def accounts(*taken: bytes) -> list[Account]:
    """Two confirmed messages of site a and one of site b, of which these came."""
    book = SitesLedger(["work"])
    for publisher, site, sent in (("a/w", "a", 2), ("b/w", "b", 1)):
        book.add(publisher, site, ["work"])
        for _ in range(sent):
            book.confirm(book.send(publisher), 0.0)
    for body in taken:
        book.take("work", body, is_redelivered=False)
    return book.accounts()


def report(*taken: bytes, is_drained: bool = True) -> SitesReport:
    made = SitesReport(7, 2.0, 20.0, "2026-11-28", "abc", "a machine", ["cut"])
    made.accounts = accounts(*taken)
    made.is_over, made.is_drained = True, is_drained
    made.faults.append(FaultRecord(1.0, 1.0, "cut", "for 5 s", "", 5.0, 2.0, 0.1))
    return made


ALL = (b"a/w/1", b"a/w/2", b"b/w/1")


def test_all_is_accounted_for() -> None:
    made = report(*ALL, b"a/w/1")
    assert made.is_clean
    assert made.headline() == "clean: 3 confirmed, 0 lost, 1 copies more than once, 1 faults in 2 min"
    text = made.text()
    assert (
        "work: confirmed 2 at a + 1 at b + unconfirmed that came 0 = consumed 3 + waiting 0 + lost 0" in text
    )
    assert "cut                     1        0.10, 0.10        2.00, 2.00" in text
    assert "problems" not in text


def test_what_makes_a_run_unclean() -> None:
    lost, full, problem = report(*ALL[:2]), report(*ALL, is_drained=False), report(*ALL)
    problem.problems.append("STUCK: a link")
    unexpected = report(*ALL, b"c/w/1")
    for made in (lost, full, problem, unexpected):
        assert not made.is_clean
        assert made.headline().startswith("NOT CLEAN: ")
    assert "  STUCK: a link" in problem.text()
    assert "NO: something still waited" in full.text()


def test_nothing_consumed_shows_nothing() -> None:
    for made in (report(), SitesReport(7, 2.0, 20.0, "", "", "", [])):
        assert not made.is_clean
        assert made.headline().startswith("NOTHING SHOWN")


def test_an_interrupted_run_says_so() -> None:
    made = report(*ALL)
    made.is_over = False
    assert made.headline().startswith("clean, interrupted: ")


def test_the_document_has_all_of_it() -> None:
    found = json.loads(report(*ALL).to_json())
    assert found["is_clean"]
    assert found["accounts"][0]["confirmed"] == {"a": 2, "b": 1}
    assert found["faults"][0]["kind"] == "cut"


def test_the_line_of_a_fault() -> None:
    record = FaultRecord(1.0, 1.0, "kill-site", "b for 3 s", "loss", 9.0)
    assert " ".join(row(record).split()) == "1.0 kill-site b for 3 s under loss 9.0 never 0.00"
