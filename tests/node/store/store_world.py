"""A store with a broker around it that does anything at all, on a disk that may lose power at any step.

The world knows of each message what must be true of it: which are safe, which are certainly gone, and which may
be there or not. Everything is drawn from one seed, so a seed is a whole history that can be told again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from node.amqp.frames import body_size, content_frames
from node.amqp.properties import Properties, content_header
from node.amqp.reader import MIXED_SIZES
from node.catalogue.records import QueueRecord
from node.queue.run import NEVER, Absent, Batch, Envelope, Run
from node.queue.storage import NO_STORE_ID
from node.scheduling.timers import Timers
from node.store.directory import claim
from node.store.disk import Read, Remove
from node.store.findings import Damage
from node.store.options import StoreOptions
from node.store.queue_index import QueueIndex
from node.store.records import HEADER_BYTES
from node.store.recovery import RecoveredStore, recover
from node.store.store import Store
from tests.kit.disk import PowerLost, SimulatedDisk

OPTIONS = StoreOptions(
    embed_max_bytes=250,
    segment_entries=8,
    journal_file_bytes=2500,
    store_file_bytes=2500,
    commit_interval_s=0.025,
)
"""Small files, so that everything that takes many messages happens after few."""

SMALL_PARTS = {
    "node.queue.operations.RECORD_MAX_BYTES": 400,
    "node.store.checkpoint.FLUSH_BYTES": 300,
    "node.store.checkpoint.SYNC_STEPS": 1,
    "node.store.file_merge._JOB_MAX_BYTES": 500,
    "node.store.file_merge._JOB_MAX_RECORDS": 3,
    "node.store.recovery_writer._GATHERED_MAX_BYTES": 300,
    "node.store.recovery_writer._SYNCS_MAX": 2,
    "node.store.store.OPERATIONS_MAX": 20,
    "node.store.store_file._READ_MAX_BYTES": 500,
    "node.store.unflushed._TOMBSTONES_MAX": 2,
}
"""With these, what is mostly one job becomes many, and other work comes in between."""

_VERSION_AT = 4
"""A file's header has its version at this offset."""

EXPIRY_TOLERANCE_S = 0.002

ENVELOPES = [
    Envelope(
        exchange,
        key,
        channel=1,
        frame_max_bytes=4096,
        persistent=persistent,
        priority=priority,
        expiration_ms=expiration_ms,
        cc=cc,
    )
    for exchange, key, priority, expiration_ms, cc in (
        ("", "plain", 0, None, ()),
        ("x", "key\udcff", 2, 60_000, ("copy",)),
        ("", "plain", 1, None, ()),
    )
    for persistent in (True, True, False)
]


@dataclass(eq=False)
class Message:
    """A message of one queue, and what must be true of it.

    expires_at_s: since 1970; None: never.   store_id: None: not known to the broker.
    is_safe: a crash must not lose it.   is_gone: the broker is done with it; safely_gone: for good.
    is_forgiven: the files that knew of it were damaged.   is_unreadable: until the next start.
    in_memory: whether the broker has its content.   copy: to where it was moved when it was done with.
    """

    queue: "Queue"
    seq: int
    content: bytes
    envelope: Envelope
    expires_at_s: float | None
    store_id: int | None
    is_indexed: bool
    is_kept: bool
    in_memory: bool = True
    deliveries: int = 0
    is_safe: bool = False
    is_gone: bool = False
    safely_gone: bool = False
    is_loading: bool = False
    is_forgiven: bool = False
    is_unreadable: bool = False
    copy: "Message | None" = None

    def __repr__(self) -> str:
        states = [name for name in ("is_kept", "is_safe", "is_gone", "safely_gone") if getattr(self, name)]
        return f"{self.queue.record.uid[:4]}:{self.seq} id={self.store_id} {' '.join(states)}"


@dataclass(eq=False)
class Queue:
    """A queue as the broker knows it. messages: all that were ever in it and may still be found."""

    record: QueueRecord
    index: QueueIndex
    next_seq: int = 1
    messages: dict[int, Message] = field(default_factory=dict)
    is_dropped: bool = False

    @property
    def live(self) -> list[Message]:
        return [message for _, message in sorted(self.messages.items()) if not message.is_gone]


class Confirm:
    """A publisher that waits for a confirm remembers what must be safe when it is settled."""

    def __init__(self, kept: Sequence[Message], gone: Sequence[Message]) -> None:
        self._kept = kept
        self._gone = gone
        self.is_safe: bool | None = None

    def settle(self, first: int, last: int, is_safe: bool) -> None:
        assert self.is_safe is None, "settled once"
        self.is_safe = is_safe
        if is_safe:
            for message in self._kept:
                message.is_safe = True
            for message in self._gone:
                message.safely_gone = True


@contextmanager
def small_parts() -> Iterator[None]:
    """Cut the work of the store into the parts of `SMALL_PARTS`."""
    with ExitStack() as stack:
        for name, value in SMALL_PARTS.items():
            stack.enter_context(patch(name, value))
        yield


class World:
    """One history.

    crashes, messages: how many there were.   safe: how often a message was to be there after a start.
    lost: how often it was not.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk()
        self.now = 0.0
        self.wall_s = 1.7e9
        self.crashes = 0
        self.messages = 0
        self.safe = 0
        self.lost = 0
        self.queues: list[Queue] = []
        self.may_be_clean = False
        self.was_cut_off = False
        self.damaged_paths: set[str] = set()
        self.all_messages: dict[tuple[str, int], list[Message]] = {}
        self._uids = 0
        self._records: list[QueueRecord] = []
        for number in range(3):
            self._declare_record(durable=number < 2)
        self._start()

    # --- the life of a node ---

    def run(self, turns: int) -> None:
        """Turns, with crashes and stops in between, and a look at everything at the end."""
        for _ in range(turns):
            self.turn()
            if self.store.is_broken or self.random.random() < 0.06:
                self.end()
        self.end()
        self.leave_nothing()

    def turn(self) -> None:
        """Act at random, run a turn of the store as a loop does, and let the disk go on for a while."""
        random = self.random
        for _ in range(random.choice((1, 1, 2, 3, 6))):
            self._act()
        if self.store.has_work or random.random() < 0.3:
            self.store.turn(self.now)
        self._go_on(random.choice((0, 1, 2, 3, 5, 10, 100)))

    def _go_on(self, steps: int) -> None:
        random = self.random
        for _ in range(steps):
            # The answers of several jobs may come together, and after other work has come up.
            if not (self.disk.execute() if random.random() < 0.3 else self.disk.step()):
                break
            if self.store.has_work and random.random() < 0.4:
                self.store.turn(self.now)
        if random.random() < 0.3:
            self._pass_time(random.choice((0.001, 0.03)))

    def _pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wall_s += seconds
        self.timers.run(self.now)

    def settle(self) -> None:
        """Run turns and the disk until nothing is left to do."""
        for _ in range(200):
            self.store.turn(self.now)
            self.disk.settle()
            self._pass_time(0.03)
            if not self.store.has_work and not self.disk.jobs:
                return
        raise AssertionError("the store never comes to rest")

    def end(self) -> None:
        """A crash, a kill or a clean stop; and the next start, which may be cut off too."""
        random = self.random
        self.disk.free()
        is_clean = self.may_be_clean = False
        kind = random.choice(("power", "power", "kill", "stop"))
        if kind == "stop" and not self.store.is_broken:
            self.settle()
            self.may_be_clean = True
            self.store.close()
            is_clean = self.store.is_closed
            self.disk = self.disk.crash(random)
        else:
            self._cut_off(kind)
        self.crashes += 1
        self._start(was_clean=is_clean)

    def damage(self) -> str:
        """The node is killed when all is written, and somebody damages a file. Returns: its path.

        Whatever it was, the node starts; what the file does not concern is as it should be.
        """
        random = self.random
        self.disk.free()
        self.settle()
        self._cut_off("kill")
        paths = [path for path in self.disk.paths() if path.startswith(("journal/", "queues/", "messages/"))]
        path = random.choice(paths)
        size = self.disk.size(path)
        at = random.randrange(size)
        if _VERSION_AT <= at < HEADER_BYTES:
            at = 0  # a later version's file is not damaged: the node would not start
        match random.choice(("flip", "flip", "zero", "truncate", "garbage", "remove")):
            case "flip":
                self.disk.flip_bit(path, at, random.randrange(8))
            case "zero":
                self.disk.zero(path, at, random.choice((1, 50, 512)))
            case "truncate":
                self.disk.truncate(path, at)
            case "garbage":
                content = self.disk.content(path)
                garbage = random.randbytes(random.choice((1, 50, 512)))
                self.disk.write(path, content[:at] + garbage + content[at + len(garbage) :])
            case "remove":
                self.disk.run([Remove(path)])
        self._forgive(path)
        self.crashes += 1
        self._start()
        return path

    def _forgive(self, path: str) -> None:
        """Expect nothing of the messages in a damaged file: they may be there, or gone, or back."""
        self.damaged_paths.add(path)
        directory = path.rpartition("/")[0]
        for queue in self.queues:
            for message in queue.messages.values():
                segment = f"queues/{queue.record.uid}/{message.seq // OPTIONS.segment_entries}.idx"
                if (
                    directory == "journal"
                    or segment == path
                    or (directory == "messages" and message.store_id)
                ):
                    message.is_safe = message.safely_gone = False
                    message.is_forgiven = True

    def _cut_off(self, kind: str) -> None:
        self.disk = self.disk.crash(self.random) if kind == "power" else self.disk.kill(self.random)

    def _start(self, *, was_clean: bool = False) -> None:
        self.was_cut_off = False
        while True:
            self._new_node()
            if self.random.random() < 0.3:
                self.disk.cut_power_after(self.random.choice((1, 3, 10, 20, 40)))
            try:
                found = self._recover()
                break
            except PowerLost:
                self._cut_off(self.random.choice(("power", "kill")))
                self.was_cut_off = True
        self.disk.cut_power_after(1 << 60)
        self._take_over(found, was_clean=was_clean)

    def _new_node(self) -> None:
        self.now = float(self.random.randint(0, 1000))
        self.timers = Timers()
        self.wall_s += 10.0
        self.was_clean = False
        self.is_read_failing = False
        self.kept: list[Message] = []
        self.gone: list[Message] = []
        self.reports: list[tuple[str, int, str]] = []
        self.store = Store(
            self.disk,
            OPTIONS,
            self.timers,
            self.wall_s - self.now,
            report=lambda path, offset, what: self.reports.append((path, offset, what)),
        )

    def _recover(self) -> RecoveredStore:
        claim(self.disk, "node", OPTIONS.segment_entries)
        durable = {record.uid: record for record in self._records if record.durable}
        found = recover(self.disk, self.store, durable, now=lambda: 0.0)
        self.store.begin()
        return found

    def _take_over(self, recovered: RecoveredStore, *, was_clean: bool) -> None:
        """Compare what was found with what must be there, and go on with it."""
        assert self.may_be_clean or not recovered.was_clean, "a clean stop that was none"
        self.was_clean = recovered.was_clean
        old = {queue.record.uid: queue for queue in self.queues}
        self.queues = []
        found: set[Message] = set()
        for record in self._records:
            queue = Queue(record, self.store.open(record))
            self.queues.append(queue)
            before = old.get(record.uid)
            if not record.durable:
                continue
            recovered_queue = recovered.queues[record.uid]
            queue.next_seq = recovered_queue.next_seq
            for page in recovered_queue.pages:
                for run in self._read_page(queue, page):
                    assert before is not None
                    found.update(self._adopt(queue, before, run))
            assert queue.next_seq > max(queue.messages, default=0)
        for queue in old.values():
            for message in queue.messages.values():
                self._check(message, found, was_clean=was_clean)
        assert self.reports == [], self.reports
        # What was not safe may be torn, or be there without its content.
        harmless = (Damage.TORN, Damage.MISSING)
        damaged = [finding for finding in recovered.findings if finding.damage not in harmless]
        assert all(finding.path in self.damaged_paths for finding in damaged), damaged
        assert recovered.messages == len(found)

    def _check(self, message: Message, found: set[Message], *, was_clean: bool) -> None:
        if message in found:
            assert message.is_kept, f"was never persistent: {message}"
            may_return = message.is_unreadable or not (message.safely_gone or was_clean)
            assert may_return or not message.is_gone, f"back: {message}"
        if message.is_safe or (was_clean and message.is_kept):
            self.safe += 1
            if not self._went_on(message, found):
                self.lost += 1
                raise AssertionError(f"lost: {message}, copy {message.copy}")

    def _went_on(self, message: Message, found: set[Message]) -> bool:
        """Whether a message is there, or where it went to, or was done with by the broker."""
        if message in found or message.is_forgiven:
            return True
        if message.copy is not None:
            return message.copy.queue.is_dropped or self._went_on(message.copy, found)
        return message.is_gone

    def _read_page(self, queue: Queue, page: Any) -> list[Run]:
        absents: list[Absent] = []
        runs: list[Run | None] = []
        queue.index.scan(page.segment, page.first_seq, page.last_seq, absents.extend)
        self.disk.settle()
        absents = [absent for absent in absents if absent.envelope.priority == page.priority]
        assert sum(map(len, absents)) == page.count, (page, absents)
        assert sum(absent.body_bytes for absent in absents) == page.body_bytes
        queue.index.load(absents, runs.extend)
        self.disk.settle()
        assert None not in runs, self.reports
        return [run for run in runs if run is not None]

    def _adopt(self, queue: Queue, before: Queue, run: Run) -> Iterable[Message]:
        """Messages that were found in a queue."""
        for index, seq in enumerate(run.seqs):
            old = before.messages.get(seq) or self._come_back(before, seq, run.contents[index])
            assert old is not None, f"unknown: {queue.record.uid} {seq}"
            assert seq not in queue.messages, f"twice: {old}"
            assert run.contents[index] == old.content, f"another content: {old}"
            self._compare(run, old)
            if self.was_clean and not self.was_cut_off:
                assert run.deliveries == old.deliveries, (run.deliveries, old.deliveries, old)
            elif self.was_clean:
                # One of the starts before may have seen no mark of a clean stop.
                assert run.deliveries in (old.deliveries, 1), (run.deliveries, old.deliveries, old)
            else:
                assert run.deliveries >= 1, f"after a crash it counts as delivered: {old}"
            store_id = run.store_id + index if run.store_id else NO_STORE_ID
            queue.messages[seq] = Message(
                queue, seq, old.content, run.envelope, old.expires_at_s, store_id, True, True,
                in_memory=False, deliveries=run.deliveries, is_safe=True,
            )  # fmt: skip
            yield old

    def _come_back(self, queue: Queue, seq: int, content: bytes) -> Message | None:
        """A message that was gone long ago, and of which only the file knew that was damaged."""
        for message in self.all_messages.get((queue.record.uid, seq), ()):
            segment = f"queues/{queue.record.uid}/{seq // OPTIONS.segment_entries}.idx"
            if message.content == content and message.is_kept and segment in self.damaged_paths:
                return message
        return None

    def _compare(self, run: Run | Absent, message: Message) -> None:
        assert fields(run.envelope) == fields(message.envelope), message
        assert run.size in (MIXED_SIZES, body_size(message.content)), message
        if message.expires_at_s is None:
            assert run.expiry == NEVER, message
        else:
            assert abs(run.expiry + self.store.epoch_s - message.expires_at_s) <= EXPIRY_TOLERANCE_S, message

    def leave_nothing(self) -> None:
        """Check that nothing is left on disk but what is being written, once all messages are done with."""
        for queue in self.queues:
            for message in queue.live:
                if message.is_indexed:
                    assert message.store_id is not None
                    queue.index.forget(range(message.seq, message.seq + 1), message.store_id)
            queue.messages.clear()
        self.settle()
        paths = [path for path in self.disk.paths() if not path.startswith("corrupt/")]
        segments = [path for path in paths if path.endswith(".idx")]
        assert segments == [], segments
        for store in (self.store.persistent, self.store.transient):
            figures = store.figures()
            assert figures.messages == 0, figures
            assert figures.files <= 1, figures
        assert len([path for path in self.disk.paths() if path.endswith((".rdq", ".tmp"))]) <= 2, (
            self.disk.paths()
        )

    # --- what a broker does ---

    def _act(self) -> None:
        acts: list[tuple[Callable[[], None], int]] = [
            (self.publish, 8),
            (self.confirm, 4),
            (self.forget, 6),
            (self.page_out, 4),
            (self.scan, 4),
            (self.deliver, 2),
            (self.move, 2),
            (self.clear, 1),
            (self.drop, 1),
            (self.trouble, 1),
        ]
        [(act, _)] = self.random.choices(acts, [weight for _, weight in acts])
        act()

    def publish(self) -> None:
        """A run comes in for one queue or several."""
        random = self.random
        envelope = random.choice(ENVELOPES)
        sizes = random.choice(((10,), (10, 20), (300,), (300, 301), (10, 300), (2, 100, 900)))
        contents = [self._content(random.choice(sizes)) for _ in range(random.randint(1, 12))]
        expiry = random.choice((NEVER, NEVER, self.now + random.randint(1, 5000) / 7))
        targets = random.sample(self.queues, random.choice((1, 1, 2, 3)))
        start = 0
        while start < len(contents):
            is_large = self._is_large(contents[start])
            stop = start + 1
            while stop < len(contents) and self._is_large(contents[stop]) == is_large:
                stop += 1
            self._come(targets, envelope, contents[start:stop], expiry, is_large)
            start = stop

    def _come(
        self, targets: list[Queue], envelope: Envelope, contents: list[bytes], expiry: float, is_large: bool
    ) -> list[list[Message]]:
        store_id = NO_STORE_ID
        if is_large and self.random.random() < 0.9:
            is_kept = envelope.persistent and any(queue.record.durable for queue in targets)
            store_id = self.store.place(contents, persistent=is_kept)
        sizes = set(map(body_size, contents))
        size = sizes.pop() if len(sizes) == 1 else MIXED_SIZES
        return [self._enqueue(queue, envelope, contents, size, expiry, store_id) for queue in targets]

    def _enqueue(
        self, queue: Queue, envelope: Envelope, contents: list[bytes], size: int, expiry: float, store_id: int
    ) -> list[Message]:
        is_kept = envelope.persistent and queue.record.durable
        first_seq = queue.next_seq
        queue.next_seq += len(contents)
        if is_kept:
            queue.index.keep(Batch(envelope, contents, size, store_id), first_seq, expiry)
        expires_at_s = None if expiry == NEVER else expiry + self.store.epoch_s
        came = []
        for at, content in enumerate(contents):
            message = Message(
                queue,
                first_seq + at,
                content,
                envelope,
                expires_at_s,
                store_id + at if store_id else NO_STORE_ID,
                is_indexed=is_kept,
                is_kept=is_kept,
            )
            queue.messages[message.seq] = message
            self.all_messages.setdefault((queue.record.uid, message.seq), []).append(message)
            came.append(message)
            self.messages += 1
            if is_kept:
                self.kept.append(message)
        return came

    def _content(self, size: int) -> bytes:
        body = f"{self.messages}-{self.random.getrandbits(40)}:".encode()
        body += bytes([self.random.choice((0, 65, 255))]) * (size - len(body))
        return content_frames(1, content_header(len(body), Properties()), body, 4096)

    @staticmethod
    def _is_large(content: bytes) -> bool:
        return len(content) >= OPTIONS.embed_max_bytes

    def confirm(self) -> None:
        """Somebody wants to know when all until now is safe."""
        confirm = Confirm(list(self.kept), list(self.gone))
        self.store.await_safety(confirm, 1, 1)
        if self.store.is_broken:
            assert confirm.is_safe is False
        self.kept, self.gone = [], []

    def _some(self, *, steps: bool, of: Callable[[Message], bool]) -> list[Message]:
        """Some live messages of one queue, with numbers of one step, store ids that follow them."""
        random = self.random
        queue = random.choice(self.queues)
        live = {message.seq: message for message in queue.live if not message.is_loading and of(message)}
        if not live:
            return []
        first = live[random.choice(list(live))] if random.random() < 0.7 else live[min(live)]
        step = random.choice((1, 2, 3)) if steps else 1
        some = [first]
        while len(some) < random.choice((1, 3, 30)):
            ahead = live.get(some[-1].seq + step)
            if ahead is None or ahead.store_id != (first.store_id and first.store_id + ahead.seq - first.seq):
                break
            some.append(ahead)
        return some

    def _mark_gone(self, messages: Iterable[Message]) -> None:
        for message in messages:
            message.is_gone = True
            message.in_memory = False
            self.gone.append(message)

    def forget(self) -> None:
        """Messages are acknowledged, wherever they are."""
        some = self._some(steps=True, of=lambda message: message.store_id is not None)
        self._forget(some)

    def _forget(self, some: list[Message]) -> None:
        """Forget messages that are indexed; the others are known here only."""
        known = [message for message in some if message.is_indexed]
        if len(known) < len(some):
            for message in known:
                self._forget_range([message])
        elif known:
            self._forget_range(known)
        self._mark_gone(some)

    def _forget_range(self, some: list[Message]) -> None:
        first = some[0]
        assert first.store_id is not None
        step = some[1].seq - first.seq if len(some) > 1 else self.random.choice((1, 5))
        first.queue.index.forget(range(first.seq, some[-1].seq + 1, step), first.store_id)

    def page_out(self) -> None:
        """Messages leave memory, from the tail or from the head."""
        queue = self.random.choice(self.queues)
        here = [message for message in queue.live if message.in_memory and not message.is_loading]
        if not here:
            return
        count = self.random.randint(1, len(here))
        self._page_out(queue, here[:count] if self.random.random() < 0.3 else here[-count:])

    def _page_out(self, queue: Queue, messages: list[Message]) -> None:
        groups: list[list[Message]] = []
        for message in messages:
            if groups and self._joins(groups[-1][-1], message):
                groups[-1].append(message)
            else:
                groups.append([message])
        queue.index.page_out([self._run(group) for group in groups])
        for message in messages:
            if not message.is_indexed and message.store_id == NO_STORE_ID and self._is_large(message.content):
                message.store_id = None
            message.is_indexed = True
            message.in_memory = False

    @staticmethod
    def _joins(before: Message, message: Message) -> bool:
        return (
            message.seq == before.seq + 1
            and message.envelope is before.envelope
            and message.expires_at_s == before.expires_at_s
            and message.is_indexed == before.is_indexed
            and message.deliveries == before.deliveries
            and message.store_id == (before.store_id and before.store_id + 1)
        )

    def _run(self, group: list[Message]) -> Run:
        first = group[0]
        sizes = {body_size(message.content) for message in group}
        expires_at_s = first.expires_at_s
        assert first.store_id is not None
        return Run(
            first.envelope,
            range(first.seq, first.seq + len(group)),
            [message.content for message in group],
            sizes.pop() if len(sizes) == 1 else MIXED_SIZES,
            NEVER if expires_at_s is None else expires_at_s - self.store.epoch_s,
            first.deliveries,
            first.store_id,
            first.is_indexed,
        )

    def scan(self) -> None:
        """Messages that are on disk only are looked for, and some of them loaded."""
        away = [
            message
            for queue in self.queues
            for message in queue.live
            if not (message.in_memory or message.is_loading or message.is_unreadable)
        ]
        if not away:
            return
        message = self.random.choice(away)
        queue, segment = message.queue, message.seq // OPTIONS.segment_entries
        within = [
            other
            for other in away
            if other.queue is queue and other.seq // OPTIONS.segment_entries == segment
        ]
        if self.random.random() < 0.5:
            within = [other for other in within if other.seq >= message.seq]
        first, last = within[0].seq, within[-1].seq

        def done(absents: list[Absent]) -> None:
            if not queue.is_dropped and not self.store.is_broken:
                self._scanned(queue, within, range(first, last + 1), absents)

        queue.index.scan(segment, first, last, done)

    def _scanned(self, queue: Queue, within: list[Message], seqs: range, absents: list[Absent]) -> None:
        found: list[int] = []
        for absent in absents:
            assert len(absent) > 0
            messages = [queue.messages[seq] for seq in absent.seqs]
            assert absent.body_bytes == sum(body_size(message.content) for message in messages)
            for index, message in enumerate(messages):
                assert message.seq in seqs
                assert message.is_indexed, f"nobody wrote it: {message}"
                assert not message.is_gone, f"found though forgotten: {message}"
                if message in within:
                    assert absent.deliveries == message.deliveries, (message, absent.deliveries)
                self._compare(absent, message)
                store_id = absent.store_id + index if absent.store_id else NO_STORE_ID
                assert message.store_id in (None, store_id), message
                message.store_id = store_id
                found.append(message.seq)
        assert found == sorted(set(found)), "in order, each once"
        missing = [message for message in within if not message.is_gone and message.seq not in found]
        assert not missing or self.is_read_failing, f"not found: {missing}: {self.reports}"
        if missing:
            # All that was asked for counts as lost, also what is in memory; the next start finds it again.
            for message in queue.live:
                message.is_unreadable = message.is_unreadable or message.seq in seqs
        self._load(queue, absents)

    def _load(self, queue: Queue, absents: list[Absent]) -> None:
        wanted: list[Absent] = []
        for absent in absents:
            if self.random.random() < 0.6:
                at = self.random.randrange(len(absent))
                whole = absent.size == MIXED_SIZES or self.random.random() < 0.5
                wanted.append(absent if whole else absent[at:])
        wanted = [
            absent
            for absent in wanted
            if not any(queue.messages[seq].is_loading or queue.messages[seq].in_memory for seq in absent.seqs)
        ]
        if not wanted:
            return
        for absent in wanted:
            for seq in absent.seqs:
                queue.messages[seq].is_loading = True

        def done(runs: list[Run | None]) -> None:
            if not queue.is_dropped and not self.store.is_broken:
                self._loaded(queue, wanted, runs)

        queue.index.load(wanted, done)

    def _loaded(self, queue: Queue, wanted: list[Absent], runs: list[Run | None]) -> None:
        assert len(runs) == len(wanted)
        for absent, run in zip(wanted, runs, strict=True):
            messages = [queue.messages[seq] for seq in absent.seqs]
            for message in messages:
                message.is_loading = False
            if any(message.is_gone for message in messages):
                continue  # cleared meanwhile: then it need not be readable
            if run is None and self.is_read_failing:
                continue
            assert run is not None, f"can't be loaded: {messages}: {self.reports}"
            assert run.seqs == absent.seqs
            assert run.is_indexed
            assert run.deliveries == absent.deliveries
            assert run.contents == [message.content for message in messages]
            for message in messages:
                self._compare(run, message)
                message.in_memory = True

    def deliver(self) -> None:
        """Messages come back from a client."""
        some = self._some(steps=True, of=lambda message: message.in_memory)
        if not some or len({(message.deliveries, message.is_indexed) for message in some}) > 1:
            return
        count = some[0].deliveries + 1
        if some[0].is_indexed and some[0].queue.record.durable:
            step = some[1].seq - some[0].seq if len(some) > 1 else 1
            some[0].queue.index.delivered(range(some[0].seq, some[-1].seq + 1, step), count)
        elif some[0].is_indexed:
            return
        for message in some:
            message.deliveries = count

    def move(self) -> None:
        """A message is dead-lettered: kept in another queue, and done with where it was, in one turn."""
        some = self._some(steps=False, of=lambda message: message.is_kept and message.store_id is not None)[
            :4
        ]
        if not some:
            return
        targets = [queue for queue in self.queues if queue.record.durable and queue is not some[0].queue]
        if not targets:
            return
        envelope = self.random.choice([envelope for envelope in ENVELOPES if envelope.persistent])
        for message in some:
            content = self._content(self.random.choice((20, 400)))
            [[copy]] = self._come(
                [self.random.choice(targets)], envelope, [content], NEVER, self._is_large(content)
            )
            message.copy = copy
        self._forget(some)

    def clear(self) -> None:
        """A queue is purged, or the messages of one segment are."""
        queue = self.random.choice(self.queues)
        if not queue.live:
            return
        first, last = queue.live[0].seq, queue.live[-1].seq
        if self.random.random() < 0.6:
            segment = self.random.choice(queue.live).seq // OPTIONS.segment_entries
            first = segment * OPTIONS.segment_entries
            last = first + OPTIONS.segment_entries - 1
        within = [message for message in queue.live if first <= message.seq <= last]
        for message in within:
            if message.in_memory and message.is_indexed:
                self._forget_range([message])
        queue.index.clear(first, last)
        self._mark_gone(within)

    def drop(self) -> None:
        """A queue is deleted, and another one declared."""
        if self.random.random() < 0.5:
            return
        queue = self.queues.pop(self.random.randrange(len(self.queues)))
        queue.index.drop()
        queue.is_dropped = True
        self._records.remove(queue.record)
        record = self._declare_record(durable=self.random.random() < 0.7)
        self.queues.append(Queue(record, self.store.open(record)))

    def _declare_record(self, *, durable: bool) -> QueueRecord:
        self._uids += 1
        record = QueueRecord("/", f"q{self._uids}", f"{self._uids:04x}" + "ab" * 14, durable=durable)
        self._records.append(record)
        return record

    def trouble(self) -> None:
        """The disk is full for a while, can't read something once, or breaks."""
        chance = self.random.random()
        if chance < 0.5:
            self.disk.free()
        elif chance < 0.8:
            self.disk.fill_up(self.random.choice((0, 500, 5000)))
        elif chance < 0.83:
            self.disk.fail_sync()
        elif chance < 0.86:
            self.disk.fail(Read)
            self.is_read_failing = True


def fields(envelope: Envelope) -> dict[str, object]:
    """All that an envelope says."""
    return {name: getattr(envelope, name) for name in Envelope.__slots__}
