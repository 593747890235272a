"""Publishers: each a session after the other, on its own node or, while that is away, on another one.

A confirm counts only for what was not returned: as in RabbitMQ, a publish to a queue whose home is down is unroutable,
which is confirmed (amqp-behaviour §9.1). So all that must not be lost is published with `mandatory`.
"""

import asyncio
import time
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from node.amqp import methods
from node.amqp.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD
from node.amqp.frames import frame
from node.amqp.method_codec import encode_method
from tests.chaos.ledger import QueueStory
from tests.kit.cluster_client import ClusterChannel, ClusterClient, Stuck
from tests.kit.ledger import CONFIRMED, NACKED, RETURNED, SENT, SPARED, Kind, Value, value_of
from tests.kit.load_client import _CONTENT_HEAD, Delivery, Lost
from tests.kit.patience import patience

if TYPE_CHECKING:
    from tests.chaos.workload import Workload

OUTCOME_S: Final = 30.0
"""A publish may wait for its outcome this long. Else the run is *stuck*: docs/reliability.md, "What is counted"."""
FAN: Final = "chaos.fan"
BODY_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Style:
    """A publisher behaves by these.   how: confirm, tx, plain (nobody tells it anything) or fan (confirms, a fanout).

    queues: where to.   window: of unconfirmed publishes.   pause_s: the longest pause between two bursts.
    """

    name: str
    how: str
    queues: tuple[str, ...]
    kind: Kind
    window: int = 100
    pause_s: float = 0.06
    burst: int = 8


@dataclass(slots=True)
class Waiting:
    """A publish whose outcome isn't known."""

    value: Value
    queues: tuple[QueueStory, ...]
    since: float
    front: int
    is_returned: bool = False


@dataclass(slots=True)
class Outstanding:
    """Holds the open publishes of one session, by tag, which rise."""

    by_tag: dict[int, Waiting] = field(default_factory=dict)
    by_value: dict[Value, Waiting] = field(default_factory=dict)


class Publisher:
    """One publisher on the node of that index."""

    def __init__(self, workload: "Workload", style: Style, node: int, random: Random) -> None:
        self._workload = workload
        self._ledger = workload.ledger
        self._style = style
        self._node = node
        self._random = random
        self._sessions = 0
        self._open = Outstanding()
        self._changed = asyncio.Event()
        self._name = ""
        self._number = 0

    async def run(self) -> None:
        """Publish until the workload stops."""
        while not self._workload.is_stopping:
            client = await self._workload.connect(self._node, self._random)
            if client is None:
                continue
            try:
                await self._session(client)
            except Lost as lost:
                self._workload.note(lost, f"publisher {self._name}")
            finally:
                self._forget()
                await self._workload.leave(client)

    async def _session(self, client: ClusterClient) -> None:
        self._sessions += 1
        self._name = f"{self._style.name}.{self._node}.{self._sessions}"
        self._number = 0
        self._ledger.kinds[self._name] = self._style.kind
        channel = await client.channel()
        channel.on_delivery = self._returned
        if self._style.how == "tx":
            await channel.ask(methods.TxSelect())
        elif self._style.how != "plain":
            channel.on_confirm = self._confirmed
            await channel.ask(methods.ConfirmSelect())
        end = time.monotonic() + self._random.uniform(4, 25)
        while not self._workload.is_stopping and time.monotonic() < end:
            for _ in range(self._random.randint(1, self._style.burst)):
                self._publish(channel)
            if self._style.how == "tx":
                await self._commit(channel)
            else:
                await self._room(channel, self._style.window)
            await asyncio.sleep(self._random.uniform(0, self._style.pause_s))
        await self._room(channel, 1)

    def _publish(self, channel: ClusterChannel) -> None:
        self._number += 1
        value = Value(self._name, self._number)
        is_fan = self._style.how == "fan"
        names = self._style.queues if is_fan else (self._random.choice(self._style.queues),)
        queues = tuple(self._ledger.queues[name] for name in names)
        for queue in queues:
            queue.mark(value, SENT)
        self._ledger.count.attempted += 1
        if self._style.how != "plain":
            waiting = Waiting(value, queues, time.monotonic(), channel.client.node)  # type: ignore[attr-defined]
            self._open.by_tag[self._number] = self._open.by_value[value] = waiting
        exchange, key = (FAN, "") if is_fan else ("", names[0])
        publish(channel, exchange, key, self._style.kind.properties(value), self._style.kind.body(value))

    async def _room(self, channel: ClusterChannel, window: int) -> None:
        """Wait until less than that many are unconfirmed. Raises: Lost, Stuck."""
        await self._drain(channel)
        while len(self._open.by_tag) >= window:
            if channel.lost is not None:
                raise channel.lost
            self._changed.clear()
            oldest = next(iter(self._open.by_tag.values()))
            limit_s = OUTCOME_S * patience()
            if time.monotonic() - oldest.since > limit_s:
                home = [queue.name for queue in oldest.queues]
                raise Stuck(
                    f"{oldest.value} from n{oldest.front + 1} to {home} has no outcome after {limit_s:.0f} s"
                )
            try:
                async with asyncio.timeout(0.5):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _drain(self, channel: ClusterChannel) -> None:
        try:
            async with asyncio.timeout(OUTCOME_S * patience()):
                await channel.client.drain()
        except TimeoutError:
            raise Stuck(f"n{self._node + 1} does not read from {self._name}") from None

    async def _commit(self, channel: ClusterChannel) -> None:
        if self._random.random() < 0.1:
            await channel.ask(methods.TxRollback(), OUTCOME_S)
            for waiting in self._open.by_tag.values():
                for queue in waiting.queues:
                    # It was never published.
                    queue.marks[waiting.value] &= ~SENT
            self._forget(are_unknown=False)
            return
        await channel.ask(methods.TxCommit(), OUTCOME_S)
        for tag in list(self._open.by_tag):
            self._outcome(tag, is_ack=True)

    # --- what the node says ---

    def _returned(self, delivery: Delivery) -> None:
        value = value_of(delivery.body)
        waiting = self._open.by_value.get(value)
        if waiting is None:
            if self._style.how != "plain":
                self._ledger.count.problem("other", f"{value} was returned after its confirm, or twice")
            return
        waiting.is_returned = True

    def _confirmed(self, tag: int, multiple: bool, is_ack: bool) -> None:
        by_tag = self._open.by_tag
        if multiple:
            while by_tag and (first := next(iter(by_tag))) <= tag:
                self._outcome(first, is_ack=is_ack)
        elif tag in by_tag:
            self._outcome(tag, is_ack=is_ack)
        else:
            self._ledger.count.problem("other", f"{self._name}: a confirm of {tag}, which waits for none")
        self._changed.set()

    def _outcome(self, tag: int, *, is_ack: bool) -> None:
        waiting = self._open.by_tag.pop(tag)
        del self._open.by_value[waiting.value]
        count = self._ledger.count
        mark = CONFIRMED if is_ack else NACKED
        if waiting.is_returned:
            count.returned += 1
            mark = RETURNED
        elif is_ack:
            count.confirmed += 1
            now = time.monotonic()
            for queue in waiting.queues:
                self._ledger.confirms.setdefault((waiting.front, queue.home), []).append(now)
        else:
            count.nacked += 1
        if self._style.how == "fan" and not self._workload.was_calm_since(waiting.since):
            mark |= SPARED
        for queue in waiting.queues:
            queue.mark(waiting.value, mark)

    def _forget(self, *, are_unknown: bool = True) -> None:
        """Leave open publishes without an outcome."""
        if are_unknown:
            self._ledger.count.unknown += len(self._open.by_tag)
        self._open = Outstanding()


def publish(channel: ClusterChannel, exchange: str, key: str, properties: bytes, body: bytes) -> None:
    """Publish with `mandatory`. Raises: Lost."""
    assert len(body) <= BODY_MAX, "one frame"
    method = methods.BasicPublish(exchange=exchange, routing_key=key, mandatory=True)
    if channel.lost is not None:
        raise channel.lost
    parts = [
        frame(FRAME_METHOD, channel.number, encode_method(method)),
        frame(FRAME_HEADER, channel.number, _CONTENT_HEAD.pack(60, 0, len(body)) + properties),
    ]
    if body:
        parts.append(frame(FRAME_BODY, channel.number, body))
    channel.client.write(b"".join(parts))
