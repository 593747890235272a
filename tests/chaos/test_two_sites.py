"""The run of two sites says what it cannot do, and which links are wrong. Nothing is started here."""

import http.client
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from tests.chaos import two_sites
from tests.chaos.schedule import schedule
from tests.chaos.sites_faults import KINDS
from tests.chaos.two_sites import kinds_of, main, wrong_links

RUNS = {"status": "running", "queue": "site.work"}


def test_all_links_are_well() -> None:
    assert wrong_links("a", [RUNS] * two_sites.LINKS) == []


def test_links_that_are_wrong_are_named_with_their_state() -> None:
    rows = [RUNS, {"status": "error", "exchange": "site.events", "error": "econnrefused"}]
    assert wrong_links("b", rows) == [
        "site.events at b: error econnrefused",
        "site b has 2 links, not 3",
    ]


def test_kinds_are_chosen_by_name() -> None:
    assert kinds_of("all") == KINDS
    assert kinds_of("cut, kill-site") == ("cut", "kill-site")
    with pytest.raises(ValueError, match="there is no earthquake; there are cut, "):
        kinds_of("cut,earthquake")


def test_what_cannot_be_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--kinds", "earthquake"]) == 2
    assert "there is no earthquake" in capsys.readouterr().out
    wrong = tmp_path / "schedule.json"
    wrong.write_text("[{}]")
    assert main(["--schedule", str(wrong)]) == 2
    assert "no schedule" in capsys.readouterr().out
    monkeypatch.setattr(two_sites, "lacking", lambda: ["root", "the program ip"])
    assert main([]) == 2
    assert capsys.readouterr().out == "chaos-sites: this machine lacks root; the program ip\n"


def test_each_kind_of_fault_comes_in_an_hour_once_before_any_comes_again() -> None:
    planned = schedule(1, 60, KINDS, episode_s=3600)
    assert {each.kind for each in planned[: len(KINDS)]} == set(KINDS)


class Process:
    """A run that ends when it is told to.   told: the signals that it got."""

    def __init__(self) -> None:
        self.told: list[signal.Signals] = []

    def send_signal(self, number: signal.Signals) -> None:
        self.told.append(number)

    def wait(self) -> int:
        os.kill(os.getpid(), signal.SIGTERM)  # which is handled before the next instruction
        return 7


def test_a_run_that_is_terminated_makes_its_account() -> None:
    """Namespaces and nodes would stay if SIGTERM ended the process that removes them."""
    former = signal.getsignal(signal.SIGTERM)
    process = Process()
    assert two_sites._wait_for(cast(Any, process)) == 7
    assert process.told == [signal.SIGINT]
    assert signal.getsignal(signal.SIGTERM) == former


def test_a_node_that_breaks_off_its_answer_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is killed in the middle of an answer is no fault of the run."""

    def get(*_: object) -> None:
        raise http.client.IncompleteRead(b"[")

    monkeypatch.setattr(two_sites.HttpApi, "get", get)
    assert two_sites.links_that_do_not_run("a") == ["no node of site a tells about its links"]


def test_nodes_that_paused_are_counted_by_site(tmp_path: Path) -> None:
    """The report of a run on a busy machine says why copies came twice."""
    up = "2026-11-28 12:00:01.5+00:00 [info] <0.0.0> started TCP listener on 10.81.2.1:5672\n"
    down = "2026-11-28 12:00:03.5+00:00 [warning] <0.0.0> this node serves no clients for now: no lease\n"
    (tmp_path / "b1.log").write_text(up + down + up)
    (tmp_path / "b1.out").write_text(up.replace("started TCP listener", "Starting") + up)
    (tmp_path / "b2.out").write_text(up + down)
    assert two_sites.outages_at("a", tmp_path).note().startswith("nodes were without a broker 0 times")
    assert two_sites.outages_at("b", tmp_path).note().startswith("nodes were without a broker 2 times")
