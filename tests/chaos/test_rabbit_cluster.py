"""RabbitMQ's nodes as the chaos tests' cluster: what they are told, and what is made of what they say."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.chaos.broker import OperatorError, Ring
from tests.chaos.rabbit_cluster import (
    RabbitCluster,
    RabbitError,
    RabbitNode,
    RabbitOptions,
    View,
    missing,
    trusted,
)
from tests.chaos.rabbit_operator import RabbitOperator, ring_of
from tests.kit.network import LoopbackNetwork, Place


class Elsewhere(LoopbackNetwork):
    """As namespaces are: each node has its own address, and commands are run there."""

    kind = "namespaces"
    is_beyond_loopback = True

    def place(self, name: str) -> Place:
        host = f"10.77.0.{name[1:]}"
        return super().place(name)._replace(node=f"{name}@{host}", host=host, port=5672, peer=f"{host}:25672")


class Proxies(LoopbackNetwork):
    kind = "proxies"


@dataclass
class Stub:
    """A node that says what it is told to.   answer: to each question; None: it does not answer."""

    name: str
    answer: Any = None
    is_running: bool = True
    sees: tuple[View, ...] = ()
    asked: list[str] = field(default_factory=list)
    lives: list[str] = field(default_factory=list)

    @property
    def short_name(self) -> str:
        return self.name.partition("@")[0]

    def evaluate(self, expression: str, timeout_s: float = 0) -> Any:
        self.asked.append(expression)
        if self.answer is None:
            raise RabbitError(f"{self.name} is silent")
        return self.answer

    evaluate_json = evaluate

    def view(self) -> View:
        return self.sees[min(len(self.lives) // 2, len(self.sees) - 1)]

    def kill(self) -> None:
        self.lives.append("kill")

    def launch(self) -> None:
        self.lives.append("launch")


def cluster_of(*stubs: Stub) -> RabbitCluster:
    cluster = RabbitCluster(Path("/nowhere"), LoopbackNetwork())
    cluster.nodes = cast(list[RabbitNode], list(stubs))
    return cluster


# --- what nodes are told ---


def test_options_are_read_from_words() -> None:
    assert RabbitOptions.parse("") == RabbitOptions("pause_minority", 10)
    assert RabbitOptions.parse("ignore,tick=60") == RabbitOptions("ignore", 60)
    assert RabbitOptions.parse(RabbitOptions("autoheal", 5).text) == RabbitOptions("autoheal", 5)


@pytest.mark.parametrize("text", ["ignroe", "tick=", "tick=0", "tick=x"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="nothing that RabbitMQ is told"):
        RabbitOptions.parse(text)


def test_proxies_cannot_be_between() -> None:
    with pytest.raises(ValueError, match="proxies"):
        RabbitCluster(Path("/nowhere"), Proxies())


def test_nodes_in_namespaces_have_addresses_in_their_names(tmp_path: Path) -> None:
    cluster = RabbitCluster(tmp_path, Elsewhere(), RabbitOptions("autoheal", 7))
    node = cluster.nodes[1]
    node.configure("n1@10.77.0.1")
    config = (tmp_path / "n2" / "rabbitmq.conf").read_text().splitlines()
    assert "listeners.tcp.2 = 10.77.0.2:5672" in config
    assert "cluster_partition_handling = autoheal" in config
    assert "cluster_formation.classic_config.nodes.1 = n1@10.77.0.1" in config
    environment = node._environment
    assert environment["RABBITMQ_NODENAME"] == "n2@10.77.0.2"
    assert environment["RABBITMQ_USE_LONGNAME"] == "true"
    assert environment["RABBITMQ_DIST_PORT"] == "25672"
    assert environment["ERL_EPMD_PORT"] == "4369"
    assert "ERL_EPMD_ADDRESS" not in environment
    arguments = environment["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"]
    assert "-kernel inet_dist_use_interface {10,77,0,2}" in arguments
    assert "-kernel net_ticktime 7" in arguments


def test_nodes_on_loopback_stay_there(tmp_path: Path) -> None:
    cluster = RabbitCluster(tmp_path, LoopbackNetwork())
    node = cluster.nodes[0]
    node.configure("")
    config = (tmp_path / "n1" / "rabbitmq.conf").read_text()
    assert f"listeners.tcp.1 = 127.0.0.1:{node.place.port}\n" in config
    assert "cluster_formation" not in config
    environment = node._environment
    assert environment["ERL_EPMD_ADDRESS"] == "127.0.0.1"
    assert "RABBITMQ_USE_LONGNAME" not in environment
    assert len({each._erlang.cookie for each in cluster.nodes}) == 1


# --- what they say ---


ROW = {"lives": True, "master": "n1", "mirrors": ["n2", "n3"], "synced": ["n3"]}


def test_a_ring_without_its_process_has_no_master() -> None:
    assert ring_of(ROW) == Ring("n1", ("n2", "n3"), ("n3",))
    assert ring_of({**ROW, "lives": False}) == Ring("", ("n2", "n3"), ("n3",), is_live=False)


def test_the_next_node_is_asked_if_one_is_silent() -> None:
    rows = [{**ROW, "name": "q", "mirrored": True}, {**ROW, "name": "plain", "mirrored": False}]
    silent, answers, dead = Stub("n1"), Stub("n2", rows), Stub("n3", [], is_running=False)
    operator = RabbitOperator(cluster_of(silent, answers, dead))
    assert asyncio.run(operator.rings()) == {"q": ring_of(ROW)}
    assert len(silent.asked) == len(answers.asked) == 1
    assert asyncio.run(operator.queue_master("q")) is silent
    rows[0]["master"] = "n2"
    assert asyncio.run(operator.queue_master("q")) is answers
    assert asyncio.run(operator.queue_master("other")) is None
    assert not dead.asked


def test_only_the_node_that_is_meant_is_asked() -> None:
    silent, answers = Stub("n1"), Stub("n2", {"q": 3})
    operator = RabbitOperator(cluster_of(silent, answers))
    assert asyncio.run(operator.depths()) == {"q": 3}
    with pytest.raises(OperatorError, match="n1 is silent"):
        asyncio.run(operator.depths(cast(RabbitNode, silent)))


@pytest.mark.parametrize(
    "ask",
    [
        lambda operator: operator.set_policy("p", "^q$", {"ha-mode": "all"}),
        lambda operator: operator.rings(),
        lambda operator: operator.depths(),
        lambda operator: operator.synchronise("q"),
        lambda operator: operator.cancel_synchronisation("q"),
        lambda operator: operator.rebalance(),
    ],
)
def test_refusals_are_errors_of_the_operator(ask: Callable[[RabbitOperator], Any]) -> None:
    for nodes in ([], [Stub("n1")]):
        operator = RabbitOperator(cluster_of(*nodes))
        with pytest.raises(OperatorError):
            asyncio.run(ask(operator))


@pytest.mark.parametrize("do", ["synchronise", "cancel_synchronisation"])
def test_an_unknown_queue_is_refused(do: str) -> None:
    operator = RabbitOperator(cluster_of(Stub("n1", "unknown")))
    with pytest.raises(OperatorError, match="unknown"):
        asyncio.run(getattr(operator, do)("q"))


@pytest.mark.parametrize(
    ("fraction", "term"), [(0, "({absolute, 1})"), (0.25, "(0.250000)"), (None, "(0.400000)")]
)
def test_the_watermark_that_raises_the_alarm(fraction: float | None, term: str) -> None:
    node = Stub("n1", "ok")
    operator = RabbitOperator(cluster_of(node))
    asyncio.run(operator.set_memory_watermark(cast(RabbitNode, node), fraction))
    assert term in node.asked[0]


# --- who needs help ---


ALL = frozenset({"n1", "n2", "n3"})
WELL = View(ALL)
PAIR = View(frozenset({"n1", "n2"}), frozenset({"n3"}))
ALONE = View(frozenset({"n3"}), frozenset({"n1", "n2"}))


@pytest.mark.parametrize(
    ("views", "kept"),
    [
        ((PAIR, PAIR, ALONE), {"n1", "n2"}),
        ((PAIR, PAIR, View()), {"n1", "n2"}),
        # Two that are apart, and one that both see.
        ((View(ALL, frozenset({"n3"})), WELL, View(ALL, frozenset({"n1"}))), {"n1", "n2"}),
        ((View(ALL, ALL - {"n1"}), View(ALL, ALL - {"n2"}), View(ALL, ALL - {"n3"})), {"n1"}),
        ((View(), View(), View()), {"n1"}),
        ((WELL, WELL, WELL), {"n1", "n2"}),
    ],
)
def test_the_largest_part_is_trusted(views: tuple[View, ...], kept: set[str]) -> None:
    assert trusted(dict(zip(sorted(ALL), views, strict=True))) == kept


def test_nodes_that_do_not_come_back_are_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest part stays; whoever it does not see is started again."""
    monkeypatch.setattr("tests.chaos.rabbit_cluster.PARTED_S", 0.0)
    one, two = Stub("n1", sees=(PAIR,)), Stub("n2", sees=(PAIR,))
    three = Stub("n3", sees=(ALONE, WELL))
    cluster = cluster_of(one, two, three)

    def both_see_all() -> None:
        one.sees = two.sees = (WELL,)
        three.lives.append("launch")

    three.launch = both_see_all  # type: ignore[method-assign]
    asyncio.run(cluster.await_up())
    assert three.lives == ["kill", "launch"]
    assert one.lives == two.lives == []
    assert len(cluster.rescues) == 1
    assert cluster.rescues[0].startswith("n3 restarted: not all see all")


def test_nobody_is_restarted_when_all_see_all() -> None:
    cluster = cluster_of(*(Stub(name, sees=(WELL,)) for name in sorted(ALL)))
    asyncio.run(cluster.await_up())
    assert cluster.rescues == []


# --- the real thing ---


@pytest.mark.skipif(
    not os.environ.get("CHAOS_RABBITMQ"), reason="takes half a minute: CHAOS_RABBITMQ=1 runs it"
)
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_cluster_forms_fails_over_and_heals(tmp_path: Path) -> None:
    asyncio.run(_live(tmp_path))


async def _live(directory: Path) -> None:
    from tests.chaos.pika_client import PikaClient

    cluster = RabbitCluster(directory, LoopbackNetwork())
    operator = RabbitOperator(cluster)
    try:
        await cluster.start()
        await operator.set_policy("all", "^q$", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        first = cluster.nodes[0]
        client = await PikaClient.connect(first.place.host, first.place.port, 0)
        channel = await client.channel()
        await channel.declare("q", durable=True)
        await _until(lambda ring: len(ring.synchronised) == 2, operator)
        assert await operator.queue_master("q") is first
        assert await operator.depths() == {"q": 0}
        first.kill()
        await _until(lambda ring: ring.master not in ("", first.name), operator)
        first.launch()
        await cluster.await_up()
        await _until(lambda ring: len(ring.synchronised) == 2, operator)
        await operator.synchronise("q")
        await operator.cancel_synchronisation("q")
        await operator.rebalance()
        await operator.set_memory_watermark(first, 0)
        await operator.set_memory_watermark(first, None)
        first.freeze()
        assert first.view() == View()
        first.thaw()
        assert await first.stop() == 0
        first.launch()
        await cluster.await_up()
        assert cluster.rescues == []
    finally:
        cluster.close()


async def _until(condition: Callable[[Ring], bool], operator: RabbitOperator) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ring = (await operator.rings()).get("q")
        if ring is not None and condition(ring):
            return
        await asyncio.sleep(0.2)
    raise AssertionError(await operator.rings())
