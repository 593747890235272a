"""A run on queues and exchanges whose messages wait, come back, die at least once, deduplicate, have groups or a hash.

    run_features(7)       run_features(7, is_traced=True, kinds=("retry",))

Faults and healing are those of `tests.sim.mirror_faults`, on the same brokers, rings and disks.
Source: docs/delayed.md, docs/dead_letters.md, docs/deduplication.md, docs/groups.md, docs/plugins.md.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from node.amqp.field_table import Table, boolean, long, longstr
from node.amqp.methods import ExchangeDeclare, Method, QueueBind, QueueDeclare, QueueUnbind
from node.catalogue.commands import EnablePlugin
from node.catalogue.events import MemberDown, ViewChanged
from node.override import override
from node.queue.delayed_queue import DelayedQueue
from tests.sim.feature_clients import WAYS_IN, FeatureConsumer, FeaturePublisher, Setup
from tests.sim.feature_ledger import RETRY_MAX_MS, RETRY_MIN_MS, FeatureLedger
from tests.sim.mirror_checks import unconverged
from tests.sim.mirror_faults import FAULTS, Run
from tests.sim.mirror_world import Violation

RETRY: Final[Table] = {
    "x-delayed-retry-type": longstr("all"),
    "x-delayed-retry-min": long(RETRY_MIN_MS),
    "x-delayed-retry-max": long(RETRY_MAX_MS),
    "x-delivery-limit": long(100_000),
}
QUORUM: Final[Table] = {"x-queue-type": longstr("quorum")}

QUEUES: Final[dict[str, Table]] = {
    "late": {},
    "retry": RETRY,
    "safe": {
        **QUORUM,
        "x-dead-letter-strategy": longstr("at-least-once"),
        "x-overflow": longstr("reject-publish"),
        "x-dead-letter-exchange": longstr("graves"),
        "x-dead-letter-routing-key": longstr("grave"),
    },
    "grave": {**QUORUM, "x-max-length": long(5), "x-overflow": longstr("reject-publish")},
    "once": {"x-message-deduplication": boolean(True), **RETRY},
    "passed": QUORUM,
    "grouped": {"x-group-header": longstr("g")},
    "hash.1": {},
    "hash.2": {},
    "hash.3": {},
}
"""Queues by name, and their arguments. `grave` refuses much of what comes to it."""

EXCHANGES: Final[dict[str, tuple[str, Table]]] = {
    "later": ("x-delayed-message", {"x-delayed-type": longstr("direct")}),
    "filter": (
        "x-message-deduplication",
        {"x-cache-size": long(100_000), "x-cache-persistence": longstr("disk")},
    ),
    "graves": ("direct", {}),
    "spread": ("x-consistent-hash", {}),
}
BINDINGS: Final = {
    "late": ("later", "late"),
    "passed": ("filter", ""),
    "grave": ("graves", "grave"),
    "hash.1": ("spread", "10"),
    "hash.2": ("spread", "7"),
    "hash.3": ("spread", "10"),
}

EXILE: Final = ("exile", 4)
"""The fault of these runs, and its weight: dead letters have no target for a while."""

SLOWING: Final = {"hold", "freeze", "disk", "total", "stop"}
"""With these faults frames and disks may take seconds."""

FAST_S: Final = 1.0
"""Without them a frame and what it does take less than this."""

WAIT_S: Final = 300.0
"""All that waits has gone after so long without faults."""

CONSUMERS: Final = {
    "retry": ("return", "ack"),
    "once": ("return", "ack"),
    "safe": ("kill",),
    "grave": ("ack", "slow"),
}
WAYS_OUT: Final = ("ack", "ack", "slow")


class FeatureRun(Run):
    """One seed.   kinds: only these, of `WAYS_IN`; empty: some."""

    known_faults = (*((name, weight) for name, weight in FAULTS if name != "delete"), EXILE)
    consumer_kind = FeatureConsumer
    ledger: FeatureLedger

    def __init__(
        self, seed: int, *, is_traced: bool = False, faults: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> None:
        random = Random(f"features {seed}")
        self.kinds = list(kinds) or random.sample(list(WAYS_IN), random.randint(1, 3))
        super().__init__(seed, is_traced=is_traced, faults=faults, kinds=queues_of(self.kinds))
        self.setups: list[Setup] = []
        if faults and not SLOWING & set(faults):
            self.ledger.after_s = FAST_S
        self.ledger.unordered |= {"late", "retry", "once", "grave"}

    @override
    def make_ledger(self) -> FeatureLedger:
        return FeatureLedger(self.world)

    # --- what happens to nodes, and what the catalogue says ---

    @override
    def make_world(self, seed: int, names: tuple[str, ...]) -> Any:
        world = super().make_world(seed, names)
        crash = world.crash

        def crashes(name: str, *, power: bool) -> None:
            # The others hear of it later.
            self.ledger.loss()
            for queue in world.catalogue.queues("/"):
                self.ledger.change(queue.name)
            crash(name, power=power)

        world.crash = crashes
        return world

    @override
    def _see(self, event: Any) -> None:
        ledger = self.ledger
        match event:
            case ViewChanged(before=before, after=after):
                old, new = before.view, after.view
                is_lossy = (
                    old is not None and new is not None and bool(new.master) and new.master not in old.synced
                )
                is_down = new is not None and new.state == "down"
                ledger.change(after.name, is_reset=is_down or is_lossy)
            case MemberDown(member=member):
                ledger.loss()
                for queue in self.world.catalogue.queues("/"):
                    if queue.home == member.name or queue.view is None:
                        ledger.change(queue.name, is_reset=queue.view is None)
        super()._see(event)

    # --- setting up ---

    @override
    def declare(self, queue: str) -> None:
        self._set_up(f"declare {queue}", self._declaration(queue))

    def _declaration(self, queue: str) -> list[Method]:
        methods: list[Method] = []
        exchange, key = BINDINGS.get(queue, ("", ""))
        if exchange:
            type_, arguments = EXCHANGES[exchange]
            methods = [ExchangeDeclare(exchange=exchange, type=type_, durable=True, arguments=arguments)]
        methods.append(QueueDeclare(queue=queue, durable=True, arguments=QUEUES[queue]))
        if exchange:
            methods.append(QueueBind(queue=queue, exchange=exchange, routing_key=key))
        return methods

    def _set_up(self, name: str, methods: Sequence[Method]) -> None:
        setup = Setup(self.world, self.ledger, name, methods)
        self.setups.append(setup)
        setup.begin()

    @override
    def begin(self) -> None:
        world, random = self.world, self.random
        world.submit(EnablePlugin("rabbitmq_consistent_hash_exchange", ("x-consistent-hash",)), None)
        for name in self.names:
            world.start(name)
        world.run(1.0)
        if random.random() < 0.9:
            self.policy()
            world.run(0.3)
        # One after the other, as the order of bindings decides where a hash leads.
        self._set_up("declare all", [method for queue in self.queues for method in self._declaration(queue)])
        if not world.run_until(lambda: self.setups[0].is_done, 30.0):
            raise Violation(f"not declared: {self.setups[0].left}")
        for number in range(random.randint(1, 3)):
            mode = random.choice(("confirm", "confirm", "confirm", "tx", "none"))
            some = random.sample(self.kinds, random.randint(1, len(self.kinds)))
            pause = random.choice((0.03, 0.1, 0.3))
            name = f"publisher {number}"
            self.publishers.append(FeaturePublisher(world, self.ledger, name, some, mode, pause))
        for queue in self.queues:
            for number in range(random.randint(2, 4) if queue == "grouped" else random.randint(1, 3)):
                way = random.choice(CONSUMERS.get(queue, WAYS_OUT))
                prefetch = random.choice((0, 1, 3, 20))
                name = f"consumer {queue} {number}"
                self.consumers.append(FeatureConsumer(world, self.ledger, name, queue, prefetch, way))
        self.apps = [*self.publishers, *self.consumers]
        for app in self.apps:
            world.after(random.uniform(0, 1.0), app.begin)

    # --- faults ---

    def exile(self) -> None:
        """Dead letters have nowhere to go for a while."""
        if "grave" not in self.queues:
            return
        exchange, key = BINDINGS["grave"]
        self._set_up("unbind", [QueueUnbind(queue="grave", exchange=exchange, routing_key=key)])
        bind = QueueBind(queue="grave", exchange=exchange, routing_key=key)
        self.world.after(self.random.uniform(0.2, 4.0), lambda: self._set_up("bind", [bind]))

    # --- the end ---

    @override
    def heal(self) -> None:
        super().heal()
        # Letters are tried every 16 s at the latest, and few find room; retries come back again and again.
        if not self.world.run_until(lambda: not self._waiting() and not unconverged(self), WAIT_S):
            raise Violation(f"{self._waiting()} messages wait for ever, or: {unconverged(self)}")

    def _waiting(self) -> int:
        """Return how many messages wait, or are on their way to other queues."""
        queues = [queue for node in self.world.serving for queue in node.broker.local_queues]
        retries = sum(queue.retries.count for queue in queues if queue.retries is not None)
        delayed = sum(queue.backlog.count for queue in queues if isinstance(queue, DelayedQueue))
        return retries + delayed + sum(queue.letters.count for queue in queues)

    @override
    def judge(self, found: dict[str, set[int]]) -> None:
        self.ledger.judge(found)
        self.counts["late ms"] += int(1000 * sum(self.ledger.late))
        self.counts["delayed"] += len(self.ledger.late)


def queues_of(kinds: Sequence[str]) -> list[str]:
    """Return the queues of some kinds of messages."""
    found: list[str] = []
    for kind in kinds:
        match kind:
            case "safe":
                found += ["safe", "grave"]
            case "hash":
                found += ["hash.1", "hash.2", "hash.3"]
            case _:
                found.append(kind)
    return found


def run_features(
    seed: int,
    *,
    is_traced: bool = False,
    seconds: float | None = None,
    faults: Sequence[str] = (),
    kinds: Sequence[str] = (),
) -> FeatureRun:
    """One run. Raises: Violation, or whatever an assertion of the code says."""
    run = FeatureRun(seed, is_traced=is_traced, faults=faults, kinds=kinds)
    run.begin()
    run.trouble_for(run.random.choice((3.0, 8.0, 15.0)) if seconds is None else seconds)
    run.heal()
    run.check()
    return run
