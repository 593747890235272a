"""A run: a workload on mirrored queues, faults at random, healing, and what has to be true then.

run_seed(7)       run_seed(7, is_traced=True)
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from node.amqp.field_table import Table, long, longstr
from node.amqp.methods import QueueDeclare, QueueDelete, QueueDeleteOk
from node.catalogue.commands import ChangeView, SetDraining, SetPolicy
from node.catalogue.events import MemberDown, QueueDeleted, ViewChanged
from node.catalogue.mirrors.views import TransferMaster
from node.catalogue.records import Json, QueueRecord
from tests.sim.mirror_checks import (
    check_attached,
    check_converged,
    check_copies,
    check_idle,
    check_no_faults,
    check_nobody_starves,
    unconverged,
)
from tests.sim.mirror_clients import App, Consumer, Getter, Once, Publisher
from tests.sim.mirror_ledger import (
    Ledger,
    dead_letters_arrive,
    nothing_confirmed_is_lost,
    rest_is_in_order,
)
from tests.sim.mirror_world import MirrorWorld, Node, Violation

KINDS: Final[dict[str, Table]] = {
    "plain": {},
    "noack": {},
    "purge": {},
    "prio": {"x-max-priority": long(3)},
    "sac": {"x-single-active-consumer": ("t", True)},  # type: ignore[dict-item]
    "lazy": {"x-queue-mode": longstr("lazy")},
    "ttl": {
        "x-message-ttl": long(900),
        "x-dead-letter-exchange": longstr(""),
        "x-dead-letter-routing-key": longstr("dlq"),
    },
    "drop": {
        "x-max-length": long(15),
        "x-dead-letter-exchange": longstr(""),
        "x-dead-letter-routing-key": longstr("dlq"),
    },
    "reject": {"x-max-length": long(20), "x-overflow": longstr("reject-publish")},
    "quorum": {"x-queue-type": longstr("quorum")},
    "trans": {},
    "dlq": {},
}
"""Queues by name, and their arguments."""

HEAL_S: Final = 150.0
"""The end is waited for at most this long: thirty seconds for the last master, and more than once."""

FAULTS: Final[tuple[tuple[str, int], ...]] = (
    ("crash", 4),
    ("ambush", 5),
    ("stop", 3),
    ("total", 1),
    ("freeze", 3),
    ("hold", 5),
    ("transfer", 6),
    ("policy", 4),
    ("drain", 1),
    ("sync", 3),
    ("page", 3),
    ("disk", 2),
    ("hang_up", 5),
    ("delete", 1),
)
"""These faults may happen, each with its weight."""


class UnwantedPromotion(Violation):
    """A copy that was not synchronised became master, though no policy allows it."""


class Run:
    """One seed.

    faults, kinds: only these faults, on queues of these kinds; empty: any.
    """

    def __init__(
        self, seed: int, *, is_traced: bool = False, faults: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> None:
        names = ("n1", "n2", "n3") if seed % 3 else ("n1", "n2", "n3", "n4")
        world = self.world = self.make_world(seed, names)
        world.is_traced = is_traced
        self.random = world.random
        self.ledger = self.make_ledger()
        self.counts: Counter[str] = Counter()
        self.apps: list[App] = []
        self.publishers: list[Publisher] = []
        self.consumers: list[Consumer] = []
        self.getters: list[Getter] = []
        self.downs: set[str] = set()
        self.lossy: set[str] = set()
        """Queues of which a copy was promoted that lacked something: publishes may have come in twice."""
        self.cancelled: set[str] = set()
        """Queues whose mirrors an operator does not want synchronised, whatever the policy says."""
        world.on_event = self._see
        self._down_since: dict[str, float] = {}
        """Each node was last declared down at this time."""
        self.ledger.gone_since = self._gone_since
        self.faults = [(name, weight) for name, weight in self.known_faults if not faults or name in faults]
        chosen = list(kinds)
        if not chosen:
            others = [kind for kind in KINDS if kind != "dlq"]
            chosen = self.random.sample(others, self.random.randint(1, 4))
            if self.random.random() < 0.7 and "plain" not in chosen:
                chosen.append("plain")
        if {"ttl", "drop"} & set(chosen):
            chosen.append("dlq")
        self.queues = chosen
        self.ledger.unordered |= {"dlq"}
        self.names = names

    known_faults = FAULTS
    consumer_kind = Consumer

    def make_ledger(self) -> Ledger:
        """The books of the clients."""
        return Ledger(self.world)

    def make_world(self, seed: int, names: tuple[str, ...]) -> Any:
        """The world, and how fast things are in it."""
        world = MirrorWorld(seed, names)
        world.latency_s = world.random.choice((0.001, 0.005, 0.05))
        world.apply_s = world.random.choice((0.001, 0.01, 0.1))
        world.congested_bytes = world.random.choice((2_000, 20_000, 1 << 20))
        return world

    # --- what the catalogue says ---

    def _see(self, event: Any) -> None:
        ledger = self.ledger
        match event:
            case ViewChanged(before=before, after=after):
                self._see_view(before, after)
            case QueueDeleted(queue=queue):
                ledger.excuse(queue.name, "deleted")
                ledger.trouble()
            case MemberDown(member=member):
                ledger.trouble()
                self._down_since[member.name] = self.world.now
                for queue in self.world.catalogue.queues("/"):
                    if queue.view is None and queue.home == member.name:
                        ledger.excuse(queue.name, "its node went down", transient_only=True)

    def _gone_since(self, node: Node | None) -> float | None:
        """Return when the node was declared down, as `Ledger.gone_since` wants it; None: it is up."""
        member = None if node is None else self.world.catalogue.member(node.name)
        return None if member is None or member.is_up else self._down_since.get(member.name)

    def _see_view(self, before: QueueRecord, after: QueueRecord) -> None:
        old, new = before.view, after.view
        if new is None:
            return
        if new.state == "down":
            self.ledger.excuse(after.name, "it was down", transient_only=True)
            self.downs.add(after.name)
            self.counts["down"] += 1
        if old is not None and new.master != old.master:
            self.ledger.trouble()
            self.ledger.moves[after.name] += bool(new.master)
            self.counts["masters"] += 1
            was_synced = new.master in old.synced or old.state == "down"
            if new.master and not was_synced:
                if not old.may_lose:
                    raise UnwantedPromotion(f"no policy says so: {old} {new}")
                self.counts["lossy promotions"] += 1
                self.lossy.add(after.name)
                self.ledger.excuse(after.name, "promoted though not synchronised")
            if old.state == "down" and new.state == "live":
                self.counts["revived"] += 1
                self.ledger.excuse(after.name, "it was down", transient_only=True)

    # --- setting up ---

    def policy(self) -> None:
        """Another policy for all queues."""
        roll = self.random.random()
        definition: dict[str, Json] = {"ha-mode": "all"}
        if roll < 0.2:
            definition = {"ha-mode": "exactly", "ha-params": self.random.randint(1, 3)}
        elif roll < 0.3:
            some = self.random.sample(self.names, self.random.randint(1, 3))
            definition = {"ha-mode": "nodes", "ha-params": some}  # type: ignore[dict-item]
        elif roll < 0.35:
            definition = {"max-length": 100_000}
        if "ha-mode" in definition:
            definition["ha-sync-mode"] = self.random.choice(("automatic", "automatic", "manual"))
            if self.random.random() < 0.15:
                definition["ha-promote-on-failure"] = "always"
            if self.random.random() < 0.3:
                definition["ha-promote-on-shutdown"] = "always"
            if self.random.random() < 0.3:
                definition["ha-sync-batch-size"] = self.random.choice((1, 3, 10))
        self.world.trace(f"policy {definition}")
        self.ledger.trouble()
        self.world.submit(SetPolicy("/", "ha", ".*", definition), None)

    def declare(self, queue: str) -> None:
        """By a client, as it would."""
        method = QueueDeclare(queue=queue, durable=queue != "trans", arguments=KINDS[queue])
        once = Once(self.world, self.ledger, f"declare {queue}", method, lambda answer: None)
        once.begin()

    def begin(self) -> None:
        """Nodes, queues, applications."""
        world, random = self.world, self.random
        for name in self.names:
            world.start(name)
        world.run(1.0)
        if random.random() < 0.9:
            self.policy()
            world.run(0.3)
        for queue in self.queues:
            self.declare(queue)
        world.run(0.5)
        for number in range(random.randint(1, 4)):
            modes = ("confirm", "confirm", "confirm", "tx", "none")
            targets = [queue for queue in self.queues if queue != "dlq"]
            some = random.sample(targets, random.randint(1, len(targets)))
            pause = random.choice((0.03, 0.1, 0.3))
            self.publishers.append(
                Publisher(world, self.ledger, f"publisher {number}", some, random.choice(modes), pause)
            )
        for queue in self.queues:
            if queue == "purge":
                self.getters.append(Getter(world, self.ledger, "purger", queue))
                continue
            for number in range(random.randint(0, 3)):
                ways = ("no_ack", "ack") if queue == "noack" else ("ack", "multiple", "mixed", "slow", "tx")
                prefetch = random.choice((0, 1, 3, 20))
                self.consumers.append(
                    Consumer(
                        world, self.ledger, f"consumer {queue} {number}", queue, prefetch, random.choice(ways)
                    )
                )
            if random.random() < 0.3:
                self.getters.append(Getter(world, self.ledger, f"getter {queue}", queue))
        self.apps = [*self.publishers, *self.consumers, *self.getters]
        for app in self.apps:
            world.after(random.uniform(0, 1.0), app.begin)

    # --- faults ---

    def _may_lose_one(self) -> bool:
        alive = len(self.world.alive)
        return 2 * (alive - 1) > len(self.names)

    def crash(self) -> None:
        """A node dies, and comes back."""
        world = self.world
        if not self._may_lose_one() or not world.serving:
            return
        node = self.random.choice(world.serving)
        self.ledger.trouble()
        world.crash(node.name, power=self.random.random() < 0.5)
        world.after(
            self.random.choice((0.05, 1.0, 8.0)) * self.random.random(), lambda: self._start(node.name)
        )

    def ambush(self) -> None:
        """The master's node dies right after it has delivered, or confirmed, something."""
        world = self.world

        def act(queue: str) -> None:
            record = world.catalogue.queue("/", queue)
            node = None if record is None else world.nodes[record.home]
            if node is None or not node.entered or not self._may_lose_one():
                return

            def end(life: int = node.life) -> None:
                if node.life == life and node.is_alive and self._may_lose_one():
                    self.ledger.trouble()
                    world.crash(node.name, power=self.random.random() < 0.5)
                    world.after(self.random.uniform(0.05, 2.0), lambda: self._start(node.name))

            world.after(self.random.choice((0.0, 0.001, 0.01)) * self.random.random(), end)

        self.ledger.ambush = self.random.choice(("delivery", "confirm")), act

    def _start(self, name: str) -> None:
        if not self.world.nodes[name].is_alive:
            self.ledger.trouble()
            self.world.start(name)

    def stop(self) -> None:
        """A node is stopped in good order, and started again."""
        world = self.world
        if not self._may_lose_one() or not world.serving:
            return
        node = self.random.choice(world.serving)
        life = node.life
        self.ledger.trouble()
        node.mirrors.leave()
        node.busy()
        since = world.now
        world.trace(f"{node.name} leaves")

        def look() -> None:
            if node.life != life or not node.is_alive:
                return
            if node.mirrors.moving and world.now - since < 5.0:
                world.after(0.02, look)
            elif self._may_lose_one():
                self.ledger.trouble()
                world.stop(node.name)
                world.after(self.random.uniform(0.0, 3.0), lambda: self._start(node.name))
            else:
                world.after(0.1, look)  # who leaves has to go in the end

        world.after(0.02, look)

    def total(self) -> None:
        """All nodes go, in any order, and come back in any order."""
        world = self.world
        self.ledger.trouble()
        power = self.random.random() < 0.6
        span = self.random.choice((0.0, 0.3, 2.0))
        for node in world.alive:

            def end(node: Node = node) -> None:
                if node.is_alive:
                    self.ledger.trouble()
                    world.crash(node.name, power=power)

            world.after(self.random.uniform(0, span), end)
        for name in self.names:
            world.after(span + self.random.uniform(0.1, 4.0), lambda name=name: self._start(name))  # type: ignore[misc]

    def freeze(self) -> None:
        """A node does nothing for a while; perhaps the others declare it down meanwhile."""
        world = self.world
        nodes = [node for node in world.serving if node.frozen_until <= world.now]
        if not nodes:
            return
        node = self.random.choice(nodes)
        self.ledger.trouble()
        span = self.random.choice((0.05, 0.5, 2.5)) * self.random.random()
        node.frozen_until = world.now + span
        world.trace(f"freeze {node.name} for {span:.3f}")
        world.at(node.frozen_until, self.ledger.trouble)
        if self.random.random() < 0.3 and self._may_lose_one():
            life = node.life

            def expelled() -> None:
                if node.life == life and node.is_alive and self._may_lose_one():
                    self.ledger.trouble()
                    node.frozen_until = 0.0
                    world.crash(node.name, power=False)
                    world.after(self.random.uniform(0.01, 1.0), lambda: self._start(node.name))

            world.at(node.frozen_until - 0.001, expelled)

    def hold(self) -> None:
        """Nothing moves from one node to another for a while."""
        world = self.world
        pair = tuple(self.random.sample(self.names, 2))
        span = self.random.choice((0.1, 1.0, 2.5)) * self.random.random()
        self.ledger.trouble()
        world.held[pair] = world.now + span  # type: ignore[index]
        world.trace(f"hold {pair} for {span:.3f}")
        world.after(span, self.ledger.trouble)

    def transfer(self) -> None:
        """A master moves."""
        records = [record for record in self.world.catalogue.queues("/") if record.view is not None]
        if not records:
            return
        record = self.random.choice(records)
        view = record.view
        assert view is not None
        heirs = [id_ for id_ in view.synced if id_ != view.master]
        if heirs and view.state == "live":
            self.world.submit(
                ChangeView(
                    "/", record.name, record.uid, TransferMaster(view.master, self.random.choice(heirs))
                ),
                None,
            )

    def drain(self) -> None:
        """A node is in maintenance mode for a while."""
        name = self.random.choice(self.names)
        self.world.submit(SetDraining(name, True), None)
        self.world.after(
            self.random.uniform(0.5, 4.0), lambda: self.world.submit(SetDraining(name, False), None)
        )

    def sync(self) -> None:
        """An operator has mirrors synchronised, or cancels that."""
        for record in self.world.catalogue.queues("/"):
            if record.view is not None:
                self.synchronise(record, is_on=self.random.random() < 0.6)

    def synchronise(self, record: QueueRecord, *, is_on: bool) -> None:
        """The queue's master, wherever it acts, is told what an operator wants."""
        (self.cancelled.discard if is_on else self.cancelled.add)(record.name)
        for node in self.world.serving:
            node.mirrors.sync(record, is_on=is_on)
            node.busy()

    def take_back_cancelling(self) -> None:
        """The operator wants mirrors synchronised after all: nothing else begins again what was cancelled.

        Once is enough. Where nobody acts as master just now, the next one has all mirrors synchronised by itself.
        """
        for record in self.world.catalogue.queues("/"):
            if record.name in self.cancelled:
                self.synchronise(record, is_on=True)

    def page(self) -> None:
        """A node is short of memory."""
        for node in self.world.serving:
            if self.random.random() < 0.6:
                node.pager.sample(0, node.broker.local_queues)
                node.busy()

    def disk(self) -> None:
        """Disks are slow for a while."""
        node = self.world.nodes[self.random.choice(self.names)]
        node.is_slow_disk = True

        def end() -> None:
            node.is_slow_disk = False

        self.world.after(self.random.uniform(0.1, 2.0), end)

    def hang_up(self) -> None:
        """An application loses its connection."""
        app = self.random.choice(self.apps)
        if isinstance(app, Consumer) and self.random.random() < 0.5:
            app.leave()
            return
        self.ledger.trouble()
        app.hang_up()

    def delete(self) -> None:
        """A queue is deleted, and declared again."""
        queue = self.random.choice(self.queues)
        self.ledger.excuse(queue, "deleted")
        self.ledger.trouble()

        def deleted(answer: object) -> None:
            self.ledger.excuse(queue, "deleted")
            self.ledger.trouble()
            if not isinstance(answer, QueueDeleteOk | str):
                raise Violation(f"delete of {queue} was answered with {answer}")
            self.world.after(self.random.uniform(0, 0.5), lambda: self.declare(queue))

        Once(self.world, self.ledger, f"delete {queue}", QueueDelete(queue=queue), deleted).begin()

    def trouble_for(self, seconds: float) -> None:
        """Faults, one after the other."""
        names = [name for name, _ in self.faults]
        weights = [weight for _, weight in self.faults]
        end = self.world.now + seconds
        pause = self.random.choice((0.1, 0.5, 1.5))
        if len(weights) > 4 and self.random.random() < 0.5:
            weights = [weight * self.random.choice((0, 1, 4)) for weight in weights]
            if not any(weights):
                weights[0] = 1
        while self.world.now < end:
            self.world.run(self.random.expovariate(1 / pause))
            fault = self.random.choices(names, weights)[0]
            self.counts[fault] += 1
            action: Callable[[], None] = getattr(self, fault)
            action()

    # --- the end ---

    def heal(self) -> None:
        """No more faults; everybody is there."""
        world = self.world
        world.trace("heal")
        self.ledger.ambush = None
        for publisher in self.publishers:
            publisher.is_quiet = True
        for getter in self.getters:
            getter.is_quiet = True
        world.held.clear()
        world.run(6.0)  # what was planned happens
        self.ledger.trouble()
        for node in world.nodes.values():
            node.frozen_until = 0.0
            node.is_slow_disk = False
            if not node.is_alive:
                self._start(node.name)
        for name in self.names:
            world.submit(SetDraining(name, False), None)
        world.submit(SetPolicy("/", "ha", ".*", {"ha-mode": "all", "ha-sync-mode": "automatic"}), None)
        world.run(2.0)
        self.take_back_cancelling()
        for queue in self.queues:
            if world.catalogue.queue("/", queue) is None:
                self.declare(queue)
        end = world.now + HEAL_S
        world.run(5.0)
        while world.now < end and unconverged(self):
            world.run(2.0)
        self.ledger.trouble()

    def check(self) -> None:
        """Check the invariants that hold at the end."""
        world = self.world
        check_no_faults(self)
        check_converged(self)
        check_attached(self)
        check_nobody_starves(self)
        for app in self.apps:
            app.finish()
        world.run(4.0)
        check_copies(self)
        check_idle(self)
        if self.random.random() < 0.6:
            self.counts["down"] += 1
            record = self.random.choice(list(world.catalogue.queues("/")))
            self.ledger.trouble()
            world.crash(record.home, power=True)
            world.run(4.0)
            self._start(record.home)
            world.run(8.0)
            self.ledger.trouble()
        found = {queue: self._rest(queue) for queue in self.queues}
        check_no_faults(self)
        self.judge(found)

    def judge(self, found: dict[str, set[int]]) -> None:
        """Check that nothing is missing.   found: what was left in each queue."""
        nothing_confirmed_is_lost(self.ledger, found, ())
        if not any(
            self.counts[each] for each in ("crash", "ambush", "stop", "total", "freeze", "delete", "down")
        ):
            dead_letters_arrive(self.ledger, found)

    def _rest(self, queue: str) -> set[int]:
        """All that is left in a queue."""
        consumer = self.consumer_kind(self.world, self.ledger, f"rest of {queue}", queue, 0, "no_ack")
        consumer.dies_on_failover = consumer.is_exclusive = False
        before, moves = self.ledger.deliveries, self.ledger.moves[queue]
        ids: list[int] = []
        inner = self.ledger.deliver

        def deliver(name: str, body: bytes, session: object, *, redelivered: bool) -> Any:
            message = inner(name, body, session, redelivered=redelivered)
            ids.append(message.id)
            return message

        self.ledger.deliver = deliver  # type: ignore[method-assign]
        consumer.begin()
        while True:
            before = self.ledger.deliveries
            self.world.run(1.0)
            if self.ledger.deliveries == before:
                break
        consumer.finish()
        self.ledger.deliver = inner  # type: ignore[method-assign]
        if queue not in self.ledger.unordered | self.lossy:
            rest_is_in_order(self.ledger, queue, ids, self.ledger.moves[queue] - moves)
        return set(ids)


def run_seed(
    seed: int,
    *,
    is_traced: bool = False,
    seconds: float | None = None,
    faults: Sequence[str] = (),
    kinds: Sequence[str] = (),
) -> Run:
    """One run. Raises: Violation, or whatever an assertion of the code says."""
    run = Run(seed, is_traced=is_traced, faults=faults, kinds=kinds)
    run.begin()
    run.trouble_for(run.random.choice((3.0, 8.0, 15.0)) if seconds is None else seconds)
    run.heal()
    run.check()
    return run
