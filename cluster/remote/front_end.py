"""One front end, as its homes see it: its proxies at our queues, and its channels that consume from them.

A front end may know of a queue, or of its mastership, before we do, as the metadata reaches us later. Its frames
about the queue are kept until then, or until it says that the queue is gone. Frames for an earlier master are
dropped.
"""

from typing import TYPE_CHECKING, Final

from cluster.errors import Malformed
from cluster.remote.frames import decode_run
from cluster.remote.outgoing_frames import Outbox, OutgoingFrames
from cluster.remote.outlet import RemoteConsumer, RemoteOutlet
from cluster.remote.proxy import Proxy
from cluster.remote.remote_pb2 import Ask, FindRequester, Frame, Limit, Operation, Reply, Share
from node.queue.queue import Queue
from node.queue.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.broker.broker import Broker

EARLY_MAX_BYTES: Final = 256 * 1024 * 1024
"""The most that may be kept for queues that we don't know yet: some sixty full windows."""

EARLY_MAX_S: Final = 60.0
"""For how long frames are kept for queues that are unknown here: metadata comes within seconds, and a question about a
queue that has moved is asked again elsewhere.
"""


class FrontEnd:
    """All proxies and channels here that belong to clients of one node, in one incarnation of it."""

    def __init__(
        self, node: str, broker: "Broker", outbox: Outbox, way_is_congested: "Callable[[], bool]"
    ) -> None:
        self._node = node
        self.proxies: dict[str, Proxy] = {}
        self._broker = broker
        self._outbox = outbox
        self._way_is_congested = way_is_congested
        self._outlets: dict[int, RemoteOutlet] = {}
        self._busy: dict[RemoteOutlet, None] = {}
        self._granted: dict[RemoteConsumer, None] = {}
        self._withholding: dict[Proxy, None] = {}
        self._early: dict[str, list[Frame]] = {}
        self._early_since: dict[str, float] = {}
        self._early_bytes = 0
        self._outgoing = OutgoingFrames(outbox, None, is_for_front_end=True)

    @property
    def has_work(self) -> bool:
        """True if `turn` has something to do."""
        return bool(
            self._busy
            or self._granted
            or (self._withholding and not self._broker.storage.is_congested)
            or (self._early and any(self._is_due(frames[0]) for frames in self._early.values()))
        )

    @property
    def is_idle(self) -> bool:
        """True if no proxy, outlet or frame is kept for the front end."""
        return not (self._outlets or self._early or self._withholding or self._granted) and all(
            proxy.is_idle for proxy in self.proxies.values()
        )

    @property
    def incarnation(self) -> int:
        """The incarnation of the front end."""
        member = self._broker.catalogue.member(self._node)
        assert member is not None, self._node
        return member.incarnation

    # --- frames ---

    def receive(self, frame: Frame) -> None:
        """Take a frame of the front end. Raises Malformed."""
        if not frame.uid:
            for operation in frame.operations:
                self._do_without_queue(operation)
            return
        if frame.uid in self._early:
            self._take_early(frame.uid)  # or this one would overtake those
        proxy = self.proxies.get(frame.uid)
        if proxy is None or proxy.mastership != frame.mastership:
            proxy = self._begin(frame, proxy)
            if proxy is None:
                return
        try:
            for operation in frame.operations:
                self._do(proxy, operation)
        finally:
            if proxy.is_again:
                proxy.end_again()
        proxy.await_safety()
        if proxy.has_withheld:
            self._withholding[proxy] = None

    def _begin(self, frame: Frame, former: Proxy | None) -> Proxy | None:
        """Begin the conversation that a frame belongs to; None: it is over, or can't begin yet."""
        queue = self._find(frame)
        if queue is None:
            if not self._is_stale(frame):
                self._put_by(frame)
            return None
        if former is not None:
            if frame.mastership < former.mastership:
                return None
            self._close(former)
        record = queue.record
        outgoing = OutgoingFrames(self._outbox, record, frame.mastership, is_for_front_end=True)
        proxy = Proxy(queue, self, self._broker, outgoing, frame.mastership)
        self.proxies[record.uid] = proxy
        return proxy

    def _do_without_queue(self, operation: Operation) -> None:
        kind = operation.WhichOneof("kind")
        if kind == "credit":
            self._credit(operation.credit)
        elif kind == "reply":
            self._reply(operation.reply)
        elif kind == "find_requester":
            self._find_requester(operation.find_requester)
        else:
            raise Malformed("something about no queue")

    def _do(self, proxy: Proxy, operation: Operation) -> None:
        kind = operation.WhichOneof("kind")
        if kind == "publish":
            proxy.publish(operation.publish)
            return
        if proxy.is_again:
            proxy.end_again()
        if kind == "settle":
            proxy.settled(operation.settle)
        elif kind == "grant":
            self._grant(proxy, operation.grant)
        elif kind == "ask":
            proxy.ask(operation.ask)
        elif kind == "subscribe":
            proxy.subscribe(operation.subscribe)
        elif kind == "unsubscribe":
            proxy.unsubscribe(operation.unsubscribe)
        elif kind == "limit":
            self._limit(proxy, operation.limit)
        elif kind == "close":
            self._close(proxy)
        else:
            raise Malformed("an operation of an unknown kind")

    def _find(self, frame: Frame) -> Queue | None:
        """Return the queue that a frame is about, if it is here and the master that the frame is meant for."""
        vhost, name = _address(frame)
        live = self._broker.vhosts.get(vhost)
        queue = live.queues.get(name) if live is not None else None
        if not isinstance(queue, Queue) or queue.record.uid != frame.uid:
            return None
        return queue if queue.mastership == frame.mastership else None

    def _is_stale(self, frame: Frame) -> bool:
        """True if a frame is meant for an earlier master."""
        vhost, name = _address(frame)
        record = self._broker.catalogue.queue(vhost, name)
        return record is not None and record.uid == frame.uid and frame.mastership < record.mastership

    def _is_due(self, frame: Frame) -> bool:
        """True if a frame that came early need not be kept any more."""
        return self._find(frame) is not None or self._is_stale(frame)

    def _put_by(self, frame: Frame) -> None:
        """Keep a frame about a queue that isn't here yet, or not any more."""
        self._early_since.setdefault(frame.uid, self._broker.now)
        early = self._early.setdefault(frame.uid, [])
        early.append(frame)
        self._early_bytes += frame.ByteSize()
        if any(operation.WhichOneof("kind") == "close" for operation in frame.operations):
            # The queue never existed for this node. Only deletions are awaited.
            for operation in (
                operation for known in self._forget_early(frame.uid) for operation in known.operations
            ):
                if operation.HasField("ask") and operation.ask.kind == Ask.DELETE:
                    self._outgoing.operation().answer.request = operation.ask.request
        elif self._early_bytes > EARLY_MAX_BYTES:
            raise Malformed("too much about queues that there are not")

    def _forget_early(self, uid: str) -> list[Frame]:
        """Remove and return the frames that were kept for a queue."""
        frames = self._early.pop(uid)
        del self._early_since[uid]
        self._early_bytes -= sum(frame.ByteSize() for frame in frames)
        return frames

    def _take_early(self, uid: str) -> None:
        """Take the frames that were kept for a queue, if it is here now. After `EARLY_MAX_S` they are dropped."""
        frames = self._early.get(uid)
        if frames is None:
            return
        if self._is_due(frames[0]):  # the others are of no earlier mastership
            for frame in self._forget_early(uid):
                self.receive(frame)  # which puts by again what is still early
        elif self._broker.now - self._early_since[uid] > EARLY_MAX_S:
            self._forget_early(uid)

    def _close(self, proxy: Proxy) -> None:
        """Close a proxy: the front end has dropped its queue, which is deleted here, or soon will be."""
        self._drop(proxy)
        proxy.leave()
        proxy.requeue_all()

    def unsettled(self, queue: Queue, *, take: bool) -> list[Run]:
        """Return the runs of a queue that the front end holds.   take: it belongs to the queue's successor from now
        on.
        """
        proxy = self.proxies.get(queue.record.uid)
        if proxy is None or proxy.queue is not queue:
            return []
        runs = proxy.unsettled()
        if take:
            self._drop(proxy)
            proxy.hand_off()
        return runs

    def _drop(self, proxy: Proxy) -> None:
        self.proxies.pop(proxy.queue.record.uid, None)
        self._withholding.pop(proxy, None)

    # --- channels ---

    def outlet(self, number: int) -> RemoteOutlet:
        """Return the outlet of one of the front end's channels; made when there is none yet."""
        outlet = self._outlets.get(number)
        if outlet is None:
            outlet = self._outlets[number] = RemoteOutlet(number, self._busy, self._way_is_congested)
        return outlet

    def forget_outlet(self, outlet: RemoteOutlet) -> None:
        """Drop a channel's outlet if its last consumer has left."""
        if not outlet.consumers:
            self._outlets.pop(outlet.id, None)
            self._busy.pop(outlet, None)

    def _credit(self, share: Share) -> None:
        outlet = self._outlets.get(share.id)
        if outlet is not None:
            outlet.taken(share.amount)

    def _grant(self, proxy: Proxy, share: Share) -> None:
        consumer = proxy.consumers.get(share.id)
        if consumer is not None and consumer.is_limited:
            self._granted[consumer] = None
            consumer.outlet.granted(consumer, share.amount)
            self._broker.wake()

    def _limit(self, proxy: Proxy, limit: Limit) -> None:
        consumer = proxy.consumers.get(limit.consumer)
        if consumer is not None:
            consumer.is_limited = limit.is_limited
            consumer.granted = 0
            consumer.outlet.granted(consumer, 0)

    def relieved(self) -> None:
        """Send deliveries again: the stream to the front end has room."""
        for outlet in self._outlets.values():
            outlet.unblock()

    # --- direct replies ---

    def _reply(self, reply: Reply) -> None:
        """Deliver a reply to a channel of ours, which may be gone (amqp-behaviour §4.12). Raises Malformed."""
        requester = self._broker.reply_consumers.find(reply.name.decode("utf-8", "surrogateescape"))
        if requester is None:
            return
        entry = decode_run(reply.run)
        if entry.count != 1:
            raise Malformed("more than one reply")
        requester.channel.deliver_reply(requester, entry.envelope, entry.contents[0])

    def _find_requester(self, find: FindRequester) -> None:
        name = find.name.decode("utf-8", "surrogateescape")
        answer = self._outgoing.operation().answer
        answer.request = find.request
        answer.consumers = int(self._broker.reply_consumers.find(name) is not None)

    # --- the turn, the end ---

    def turn(self) -> None:
        """End a turn: what was granted for it is used now or goes back. Raises Malformed."""
        if self._granted:
            granted, self._granted = self._granted, {}
            for consumer in granted:
                if consumer.granted > 0 and consumer.is_limited and consumer.id in consumer.proxy.consumers:
                    give_back = consumer.proxy.outgoing.operation().give_back
                    give_back.id, give_back.amount = consumer.id, consumer.granted
                    consumer.granted = 0
        if self._busy:
            busy = list(self._busy)
            self._busy.clear()
            for outlet in busy:
                outlet.end_turn()
        if self._withholding and not self._broker.storage.is_congested:
            withholding, self._withholding = self._withholding, {}
            for proxy in withholding:
                proxy.answer_withheld()
        for uid in list(self._early):
            self._take_early(uid)

    def lose(self, *, is_stopping: bool = False) -> None:
        """End all of the front end: its consumers leave, then the messages that it held go back (amqp-behaviour §9.1).

        is_stopping: this node stops. The front end's consumers stay where they are, without room for messages, or
        auto-delete queues would go with the last of them.
        """
        proxies = list(self.proxies.values())
        self.proxies.clear()
        self._withholding.clear()
        self._early.clear()
        self._early_since.clear()
        if is_stopping:
            for outlet in self._outlets.values():
                outlet.shut()
        for proxy in proxies:
            proxy.outgoing.is_closed = True
            if not is_stopping:
                proxy.leave()
        for proxy in proxies:
            proxy.requeue_all()
        self._outlets.clear()
        self._busy.clear()
        self._granted.clear()


def _address(frame: Frame) -> tuple[str, str]:
    """Return vhost and name of the queue that a frame is about."""
    return frame.vhost.decode("utf-8", "surrogateescape"), frame.name.decode("utf-8", "surrogateescape")
