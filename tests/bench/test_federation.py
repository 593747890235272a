"""The workloads of federation: what they ask operators' commands for, and when a link counts as running."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from bench import federation
from bench.client import BenchError
from bench.federation import (
    FEDERATION_WORKLOADS,
    await_link,
    await_links,
    begin_downstream,
    federate,
    running_links,
)
from bench.report import AtLeast

STATUS = (
    '[#{{error => <<>>,exchange => <<"bench.federation.1">>,status => {one},type => exchange}},\n'
    ' #{{error => <<"running away">>,exchange => <<"running">>,\n   status => {two},type => exchange}}]\n'
)


class Operated:
    """A server that notes what operators ask of it.   answers: the outputs of the commands, one after the other."""

    port = 5679

    def __init__(self, *answers: str) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._answers = list(answers)

    def enable_plugin(self, name: str) -> None:
        self.asked.append(("enable", name))

    def ctl(self, *words: str) -> str:
        self.asked.append(words)
        return self._answers.pop(0) if len(self._answers) > 1 else "".join(self._answers)


class Downstream:
    """A queue that gets what is published from the third probe on."""

    def __init__(self) -> None:
        self.published = 0
        self.socket = SimpleNamespace(sendall=self._sendall)

    def _sendall(self, data: bytes) -> None:
        assert data.count(b"bench.federation") == 1
        self.published += 1

    def declare_queue(self, queue: str, *, durable: bool, passive: bool) -> int:
        return max(self.published - 2, 0)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROBE_S", "POLL_S", "QUIET_S", "LINKS_POLL_S"):
        monkeypatch.setattr(federation, name, 0.0)


def test_downstream_has_a_name_of_its_own_and_default_settings() -> None:
    down: Any = Operated()
    begin_downstream(down)
    federate(down, Operated(), "^x$")  # type: ignore[arg-type]
    enabling, naming, parameter, policy = down.asked
    assert enabling == ("enable", "rabbitmq_federation")
    assert naming == ("set_cluster_name", "bench-downstream")
    assert parameter[:3] == ("set_parameter", "federation-upstream", "bench")
    assert json.loads(parameter[3]) == {"uri": "amqp://guest:guest@127.0.0.1:5679"}
    assert policy[:5] == ("set_policy", "--apply-to", "exchanges", "bench", "^x$")
    assert json.loads(policy[5]) == {"federation-upstream": "bench"}


def test_a_link_runs_once_a_probe_has_come() -> None:
    site: Any = Downstream()
    assert await_link(site, site) == 1
    assert site.published == 3


def test_a_link_that_passes_nothing_on_is_told() -> None:
    site: Any = Downstream()
    site.declare_queue = lambda *_, **__: 0
    with pytest.raises(BenchError, match="passes nothing on"):
        await_link(site, site, stall_s=0.0)


def test_links_are_counted_by_their_status_alone() -> None:
    """A name or an error with the same word does not count."""
    server: Any = Operated(STATUS.format(one="running", two="starting"))
    assert running_links(server) == 1
    server = Operated(
        "[]", STATUS.format(one="running", two="error"), STATUS.format(one="running", two="running")
    )
    await_links(server, 2)
    assert len(server.asked) == 3
    server = Operated(STATUS.format(one="running", two="shutdown"))
    with pytest.raises(BenchError, match="2 links were to run, and 1 do"):
        await_links(server, 2, longest_s=0.0)


def test_four_times_the_rate_of_rabbitmq_is_asked_for() -> None:
    exchange, idle = FEDERATION_WORKLOADS
    assert [row.required for row in exchange.rows] == [AtLeast(4.0)]
    assert [row.metric for row in idle.rows] == ["cpu", "rss", "added", "up"]
    assert all(each.fresh and not each.alone for each in FEDERATION_WORKLOADS)
