"""Operations: to bytes and back, whatever is in them; and a queue is what its operations say."""

from itertools import pairwise
from random import Random
from struct import pack

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.amqp.reader import MIXED_SIZES
from node.queue.backlog import Backlog
from node.queue.operations import (
    RECORD_MAX_BYTES,
    CorruptRecord,
    Delivered,
    Enqueue,
    Operation,
    Remove,
    decode,
    decode_head,
    encode,
    enqueues,
    expires_at_ms,
    expiry_of,
    joined,
)
from node.queue.run import NEVER, Batch, Envelope, Run, bytes_of
from tests.kit.messages import content, envelope, run_of
from tests.kit.stored import Image

names_strategy = st.binary(max_size=255).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
keys_strategy = st.lists(names_strategy, max_size=3).map(tuple)
envelopes_strategy = st.builds(
    Envelope,
    names_strategy,
    names_strategy,
    channel=st.integers(0, 65535),
    frame_max_bytes=st.integers(0, 2**32 - 1),
    persistent=st.booleans(),
    priority=st.integers(0, 255),
    expiration_ms=st.none() | st.integers(0, 2**40),
    cc=keys_strategy,
    bcc=keys_strategy,
)
bodies_strategy = st.lists(st.binary(max_size=30), min_size=1, max_size=8) | st.builds(
    lambda body, count: [body] * count, st.binary(max_size=9), st.integers(1, 8)
)
seqs_strategy = st.integers(0, 2**62)
ranges_strategy = st.lists(
    st.builds(
        lambda start, count: range(start, start + count),
        seqs_strategy | st.integers(0, 60),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=12,
)


def enqueue(bodies: list[bytes], first_seq: int = 1, of: Envelope | None = None, **more: int) -> Enqueue:
    """Messages as `enqueues` would make them."""
    contents = [content(body) for body in bodies]
    sizes = set(map(len, bodies))
    size = sizes.pop() if len(sizes) == 1 else MIXED_SIZES
    return Enqueue(of or envelope(), first_seq, contents, len(bodies), size, sum(map(len, bodies)), **more)


@st.composite
def enqueues_strategy(draw: st.DrawFn) -> Enqueue:
    """Any Enqueue."""
    more = {
        "expires_at_ms": draw(st.integers(0, 2**50)),
        "deliveries": draw(st.integers(0, 2**32 - 1)),
    }
    first_seq, of = draw(seqs_strategy), draw(envelopes_strategy)
    if draw(st.booleans()):
        return enqueue(draw(bodies_strategy), first_seq, of, **more)
    count, size = draw(st.integers(1, 2**32 - 1)), draw(st.integers(0, 2**29))
    store_id = draw(st.integers(1, 2**62))
    return Enqueue(of, first_seq, [], count, size, size * count, store_id=store_id, **more)


def fields(of: Envelope) -> dict[str, object]:
    return {name: getattr(of, name) for name in Envelope.__slots__}


def told(entry: Enqueue) -> tuple[object, ...]:
    """All that is said of messages, for comparison."""
    return (
        fields(entry.envelope), entry.first_seq, entry.contents, entry.count, entry.size, entry.body_bytes,
        entry.expires_at_ms, entry.deliveries, entry.store_id,
    )  # fmt: skip


def raw(operation: Operation) -> bytes:
    return b"".join(encode(operation))


# --- to bytes and back ---


@given(enqueues_strategy())
@example(enqueue([b""]))
@example(enqueue([b"", b"x"]))
def test_an_enqueue_comes_back(entry: Enqueue) -> None:
    """All of it; the head alone without the contents."""
    assert told(decode(raw(entry))) == told(entry)
    head = decode_head(raw(entry))
    assert (head.contents, fields(head.envelope)) == ([], fields(entry.envelope))
    head.contents = entry.contents
    assert told(head) == told(entry)


@given(ranges_strategy, st.integers(0, 2**32 - 1))
def test_ranges_come_back(ranges: list[range], count: int) -> None:
    """As the fewest ranges of the same numbers."""
    assert decode(raw(Remove(tuple(ranges)))) == Remove(tuple(joined(ranges)))
    assert decode(raw(Delivered(tuple(ranges), count))) == Delivered(tuple(joined(ranges)), count)
    assert decode_head(raw(Remove(tuple(ranges)))) == Remove(tuple(joined(ranges)))


@given(st.lists(st.builds(range, st.integers(0, 40), st.integers(0, 40)), max_size=9))
def test_joined_ranges(ranges: list[range]) -> None:
    """Joined ranges have the same numbers, rise, and do not touch each other."""
    result = joined(ranges)
    assert {seq for part in result for seq in part} == {seq for part in ranges for seq in part}
    assert all(result)
    assert all(before.stop < after.start for before, after in pairwise(result))


def test_many_ranges_are_compact() -> None:
    """Every other of ten thousand messages: two octets each."""
    assert len(raw(Remove(tuple(range(seq, seq + 1) for seq in range(2**40, 2**40 + 20_000, 2))))) < 20_020


def test_equal_envelopes_are_one() -> None:
    """A backlog sees by it that runs belong together."""
    first, second = decode(raw(enqueue([b"a"]))), decode(raw(enqueue([b"b"], 2)))
    assert first.envelope is second.envelope
    assert first.envelope is not decode(raw(enqueue([b"a"], of=envelope("other")))).envelope


def test_contents_are_not_copied() -> None:
    """Contents are encoded as parts of their own, without a copy."""
    entry = enqueue([b"a", b"b"])
    assert [part for part in encode(entry) if part is entry.contents[1]]


@given(st.binary(max_size=200))
def test_other_bytes_are_corrupt(data: bytes) -> None:
    """Any bytes are an operation or a CorruptRecord."""
    for one in (decode, decode_head):
        try:
            one(data)
        except CorruptRecord:
            continue


@settings(max_examples=300)
@given(
    st.one_of(
        enqueues_strategy(),
        st.builds(Remove, ranges_strategy.map(tuple)),
        st.builds(Delivered, ranges_strategy.map(tuple), st.integers(0, 9)),
    ),
    st.randoms(use_true_random=False),
)
def test_damaged_operations_are_corrupt(operation: Operation, random: Random) -> None:
    """Whatever is changed, cut or added: an operation that can be written again, or a CorruptRecord."""
    data = bytearray(raw(operation))
    for _ in range(random.randint(1, 3)):
        at = random.randrange(min(len(data), 90)) if random.random() < 0.8 else random.randrange(len(data))
        kind = random.choice(("change", "cut", "add", "ones"))
        if kind == "change":
            data[at] = random.randrange(256)
        elif kind == "cut":
            data = data[: at + 1]
        elif kind == "add":
            data[at:at] = random.randbytes(random.randint(1, 8))
        else:
            data[at : at + 8] = b"\xff" * 8
    try:
        found = decode(bytes(data))
    except CorruptRecord:
        pass
    else:
        again = decode(raw(found))
        if isinstance(found, Enqueue) and isinstance(again, Enqueue):
            assert told(again) == told(found)
        else:
            assert again == found
    try:
        decode_head(bytes(data))
    except CorruptRecord:
        return


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\4",  # a kind that a later version may know
        b"\2",
        b"\2\1" + bytes(8),  # no range
        b"\2\1" + bytes(8) + b"\1\1",  # a gap behind which nothing comes
        b"\2\1" + bytes(8) + b"\0",  # an empty range
        b"\2\3" + bytes(8) + b"\0\0\1",
        b"\2\2" + bytes(8) + b"\0\1\2",
        b"\2\1" + b"\xff" * 8 + b"\1",
        b"\3\0\0\0\1",
    ],
)
def test_what_is_no_operation(data: bytes) -> None:
    """Kinds and ranges that can't be."""
    with pytest.raises(CorruptRecord):
        decode(data)


@pytest.mark.parametrize(
    "numbers",
    [
        {"count": 0},
        {"count": 2},
        {"size": -2},
        {"size": 2},
        {"body_bytes": 2},
        {"first_seq": 2**63},
        {"store_id": 1},
        {"content_bytes": 0},
        {"content_bytes": 28},
        {"envelope_bytes": 30},
        {"envelope_bytes": 2**32 - 1},
        {"count": 2**32 - 1, "content_bytes": 2**32 - 1},
    ],
)
def test_numbers_that_contradict_each_other(numbers: dict[str, int]) -> None:
    """The head of a good record with one number changed."""
    good = raw(enqueue([b"x"]))
    fixed = {
        "deliveries": 0, "first_seq": 1, "count": 1, "size": 1, "body_bytes": 1, "expires_at_ms": 0,
        "store_id": 0, "content_bytes": len(content(b"x")), "envelope_bytes": 0,
    }  # fmt: skip
    fixed["envelope_bytes"] = len(good) - 57 - fixed["content_bytes"]
    assert good[:57] == pack(">BIQIqQQQII", 1, *fixed.values())
    changed = pack(">BIQIqQQQII", 1, *(fixed | numbers).values()) + good[57:]
    with pytest.raises(CorruptRecord):
        decode(changed)
    with pytest.raises(CorruptRecord):
        decode_head(changed)


@pytest.mark.parametrize("waits", [False, True])
def test_an_envelope_says_whether_its_messages_wait(waits: bool) -> None:
    """Another master, and a restart, find those that wait to be ready again."""
    entry = enqueue([b"x"])
    entry.envelope = entry.envelope.counterpart() if waits else entry.envelope
    found = decode(raw(entry))
    assert isinstance(found, Enqueue)
    assert found.envelope.waits is waits
    assert found.envelope.counterpart().waits is not waits


def test_an_unknown_flag_of_an_envelope_is_corrupt() -> None:
    """An unknown flag could mean anything, so its record is corrupt."""
    data = bytearray(raw(enqueue([b"x"])))
    data[57] |= 8
    with pytest.raises(CorruptRecord):
        decode(bytes(data))


# --- from runs ---


def test_a_run_becomes_one_enqueue() -> None:
    """With its own list of contents."""
    run = run_of(b"a", b"b", first_seq=7, expiry=2.5, deliveries=3)
    (entry,) = enqueues(run, 1000.0)
    assert told(entry) == told(enqueue([b"a", b"b"], 7, run.envelope, expires_at_ms=1_002_500, deliveries=3))
    assert entry.contents is not run.contents


def test_times() -> None:
    """Times come back with milliseconds; 0 stands for never, so nothing else becomes 0."""
    assert (expires_at_ms(NEVER, 5.0), expiry_of(0, 5.0)) == (0, NEVER)
    assert expires_at_ms(-9.0, 0.0) == 1
    assert expiry_of(expires_at_ms(12.345, 1.7e9), 1.7e9) == pytest.approx(12.345, abs=0.001)
    assert decode(raw(enqueue([b"x"], expires_at_ms=expires_at_ms(1e300, 0.0)))).expires_at_ms > 2**62


def test_runs_are_cut_at_gaps_between_numbers() -> None:
    """After a round robin a run has every other message."""
    entries = enqueues(run_of(b"a", b"bc", first_seq=3, step=2), 0.0)
    assert [(entry.first_seq, entry.count, entry.size, entry.body_bytes) for entry in entries] == [
        (3, 1, 1, 1),
        (5, 1, 2, 2),
    ]


def test_runs_in_the_message_store() -> None:
    """Without contents; each operation has one size, and ids follow the numbers."""
    same = run_of(b"a", b"b", b"c", first_seq=3)
    same.store_id = 9
    (entry,) = enqueues(same, 0.0)
    assert (entry.contents, entry.count, entry.size, entry.store_id) == ([], 3, 1, 9)
    mixed = run_of(b"a", b"bb", first_seq=3, step=2)
    mixed.store_id = 9
    entries = enqueues(mixed, 0.0)
    assert [(entry.first_seq, entry.size, entry.store_id, entry.contents) for entry in entries] == [
        (3, 1, 9, []),
        (5, 2, 11, []),
    ]


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from([1, 1000, 400_000, RECORD_MAX_BYTES, 2_000_000]), min_size=1, max_size=8)
    | st.builds(
        lambda size, count: [size] * count, st.sampled_from([1000, 300_000, 2_000_000]), st.integers(1, 8)
    )
)
def test_operations_stay_small(sizes: list[int]) -> None:
    """Contents in an operation are at most 1 MiB, or one message; none is lost, and no cut is needless."""
    run = run_of(*(bytes([size % 251]) * size for size in sizes), first_seq=5)
    entries = enqueues(run, 0.0)
    assert [part for entry in entries for part in entry.contents] == run.contents
    assert [seq for entry in entries for seq in entry.seqs] == list(run.seqs)
    for entry in entries:
        assert entry.body_bytes == bytes_of(entry.contents, MIXED_SIZES)
        assert entry.count == 1 or sum(map(len, entry.contents)) <= RECORD_MAX_BYTES
        assert entry.count > 1 or entry.size == entry.body_bytes
    for before, after in pairwise(entries):
        assert sum(len(part) + 4 for part in (*before.contents, after.contents[0])) > RECORD_MAX_BYTES


def test_slices() -> None:
    """A slice of an Enqueue has consecutive messages, with what belongs to them."""
    entry = enqueue([b"a", b"bb", b"cc", b"d"], 10)
    assert told(entry[1:3]) == told(Enqueue(entry.envelope, 11, entry.contents[1:3], 2, MIXED_SIZES, 4))
    stored = Enqueue(envelope(), 10, [], 5, 3, 15, deliveries=2, store_id=100)
    assert told(stored[3:]) == told(Enqueue(stored.envelope, 13, [], 2, 3, 6, deliveries=2, store_id=103))


# --- the image ---


def at(image: Image) -> dict[int, tuple[bytes, int]]:
    """Content and deliveries of each message of an image, in order."""
    return {
        seq: (entry.contents[index], entry.deliveries)
        for entry in image.entries
        for index, seq in enumerate(entry.seqs)
    }


def test_an_image_knows_what_it_has_seen() -> None:
    """An Enqueue that comes again changes nothing, even where its messages are removed; nor does a Remove of
    what is unknown.
    """
    first = enqueue([b"a", b"b", b"c"], 1)
    image = Image([Remove((range(2, 3),)), first, Remove((range(2, 3),)), first])
    assert [list(entry.seqs) for entry in image.entries] == [[1], [3]]
    image.apply(enqueue([b"x", b"y", b"z"], 3))
    assert at(image) == {
        1: (content(b"a"), 0),
        3: (content(b"c"), 0),
        4: (content(b"y"), 0),
        5: (content(b"z"), 0),
    }
    assert (len(image), image.body_bytes, image.next_seq) == (4, 4, 6)
    assert first.count == 3, "what it was given is not changed"


def test_an_empty_image() -> None:
    """A queue of which nothing is known."""
    image = Image()
    image.apply(Delivered((range(1, 5),), 2))
    assert (len(image), image.body_bytes, image.next_seq, image.entries) == (0, 0, 0, [])


@given(
    st.lists(
        st.builds(lambda first, count: enqueue([b"x"] * count, first), st.integers(0, 30), st.integers(1, 6))
        | st.builds(
            Remove, st.tuples(st.builds(lambda a, n: range(a, a + n), st.integers(0, 36), st.integers(1, 9)))
        )
        | st.builds(
            Delivered,
            st.tuples(st.builds(lambda a, n: range(a, a + n), st.integers(0, 36), st.integers(1, 9))),
            st.integers(1, 3),
        ),
        max_size=12,
    )
)
def test_an_image_is_what_the_simplest_model_is(operations: list[Operation]) -> None:
    """A dictionary by number; and all operations once more change nothing that was removed."""
    alive: dict[int, int] = {}
    known: set[int] = set()
    image = Image()
    for operation in operations:
        image.apply(operation)
        if isinstance(operation, Enqueue):
            alive |= {seq: 0 for seq in operation.seqs if seq not in known}
            known.update(operation.seqs)
        else:
            for seq in operation.ranges[0]:
                if seq in alive and isinstance(operation, Remove):
                    del alive[seq]
                elif seq in alive:
                    alive[seq] = operation.count
        assert {seq: deliveries for seq, (_, deliveries) in at(image).items()} == alive
        assert [*at(image)] == sorted(alive)
        assert image.next_seq == max(known, default=-1) + 1


class QueueOfOperations(RuleBasedStateMachine):
    """A queue that says what happens to it is at any time what its operations come to.

    The queue is a backlog, what is delivered, and a counter. To hold the broker's own queue to it: give it a
    storage whose `keep`, `forget` and `delivered` write operations, and call its methods in these rules.
    """

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog()
        self.unacked: list[Run] = []
        self.next_seq = 1
        self.envelopes = [envelope(key) for key in "ab"]
        self.operations: list[bytes] = []

    def say(self, operation: Operation) -> None:
        self.operations.append(raw(operation))

    @rule(bodies=bodies_strategy, which=st.integers(0, 1), expiry=st.sampled_from([NEVER, 5.0]))
    def publish(self, bodies: list[bytes], which: int, expiry: float) -> None:
        contents = [content(body) for body in bodies]
        run = run_of(*bodies, first_seq=self.next_seq, expiry=expiry)
        run.envelope = self.envelopes[which]
        for entry in enqueues(run, 0.0):
            self.say(entry)
        self.backlog.append(Batch(run.envelope, contents, run.size), self.next_seq, expiry)
        self.next_seq += len(bodies)

    @precondition(lambda self: self.backlog.count)
    @rule(limit=st.integers(1, 9), is_round_robin=st.booleans())
    def take(self, limit: int, is_round_robin: bool) -> None:
        run = self.backlog.take(limit)
        self.unacked += [run[::2], run[1::2]] if is_round_robin and len(run) > 1 else [run]

    @precondition(lambda self: self.unacked)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        """A part of a run, or all."""
        run = self.unacked.pop(data.draw(st.integers(0, len(self.unacked) - 1)))
        cut = data.draw(st.integers(1, len(run)))
        self.say(Remove(tuple(range(seq, seq + 1) for seq in run.seqs[:cut])))
        if cut < len(run):
            self.unacked.append(run[cut:])

    @precondition(lambda self: self.unacked)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        run = self.unacked.pop(data.draw(st.integers(0, len(self.unacked) - 1)))
        run.deliveries += 1
        self.say(Delivered(tuple(range(seq, seq + 1) for seq in run.seqs), run.deliveries))
        self.backlog.put_back(run)

    @invariant()
    def the_operations_tell_the_queue(self) -> None:
        image = Image(map(decode, self.operations))
        waiting = Backlog()
        runs = []
        while self.backlog.count:
            runs.append(self.backlog.take(1 << 30))
        for run in runs:
            waiting.put_back(run)
        self.backlog = waiting
        messages = sorted(
            (
                seq,
                run.contents[index],
                run.deliveries,
                run.envelope.routing_key,
                expires_at_ms(run.expiry, 0.0),
            )
            for run in (*runs, *self.unacked)
            for index, seq in enumerate(run.seqs)
        )
        assert messages == [
            (seq, entry.contents[index], entry.deliveries, entry.envelope.routing_key, entry.expires_at_ms)
            for entry in image.entries
            for index, seq in enumerate(entry.seqs)
        ]
        assert image.body_bytes == sum(run.body_bytes for run in (*runs, *self.unacked))


QueueOfOperations.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestQueueOfOperations = QueueOfOperations.TestCase
