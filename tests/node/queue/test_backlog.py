"""The ready messages of a queue, against the simplest model there is: a sorted list (amqp-behaviour §4.11)."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from node.amqp.reader import MIXED_SIZES
from node.queue.backlog import RUN_MAX, Backlog
from node.queue.run import NEVER, Batch, Run
from tests.kit.messages import bodies_of, content, envelope, run_of


def filled(*bodies: bytes, first_seq: int = 1) -> Backlog:
    backlog = Backlog()
    shared = envelope()
    for seq, body in enumerate(bodies, first_seq):
        backlog.append(Batch(shared, [content(body)], len(body)), seq)
    return backlog


def drained(backlog: Backlog) -> list[bytes]:
    bodies = []
    while backlog.count:
        bodies += bodies_of(backlog.take(100))
    return bodies


def test_what_follows_with_the_same_envelope_joins_the_run() -> None:
    taken = filled(b"a", b"b", b"c").take(10)
    assert (list(taken.seqs), bodies_of(taken), taken.size) == ([1, 2, 3], [b"a", b"b", b"c"], 1)


def test_sizes_that_differ_are_mixed() -> None:
    backlog = filled(b"a", b"bb")
    assert backlog.body_bytes == 3
    assert backlog.take(10).size == MIXED_SIZES


def test_another_envelope_or_expiry_or_a_gap_begins_a_run() -> None:
    backlog, shared = Backlog(), envelope()
    backlog.append(Batch(shared, [content(b"a")], 1), 1)
    backlog.append(Batch(shared, [content(b"b")], 1), 2, 5.0)
    backlog.append(Batch(envelope(), [content(b"c")], 1), 3, 5.0)
    assert [bodies_of(backlog.take(10)) for _ in range(3)] == [[b"a"], [b"b"], [b"c"]]


def test_a_run_stops_growing() -> None:
    backlog, shared = Backlog(), envelope()
    for seq in range(1, RUN_MAX + 2):
        backlog.append(Batch(shared, [b"c"], 1), seq)
    assert len(backlog.take(1 << 30)) == RUN_MAX
    assert len(backlog.take(1 << 30)) == 1


def test_new_messages_do_not_join_redelivered_ones() -> None:
    """§4.11: what was never delivered isn't `redelivered`."""
    backlog, shared = Backlog(), envelope()
    backlog.put_back(Run(shared, range(1, 2), [content(b"a")], 1, deliveries=1))
    backlog.append(Batch(shared, [content(b"b")], 1), 2)
    assert [backlog.take(9).deliveries for _ in range(2)] == [1, 0]


def test_the_list_given_is_copied() -> None:
    backlog, contents = Backlog(), [content(b"a")]
    backlog.append(Batch(envelope(), contents, 1), 1)
    contents.clear()
    assert drained(backlog) == [b"a"]


def test_a_long_run_lets_go_of_what_has_left() -> None:
    """A run lets go of taken contents, so that one slow consumer does not pin the bytes of all of it."""
    backlog = filled(*[b"x"] * 100)
    backlog.take(60)
    assert sum(len(run.contents) for run in backlog._runs) == 40


def test_put_back_at_the_head() -> None:
    """§4.11: original position."""
    backlog = filled(*b"a b c d".split())
    taken = backlog.take(2)
    backlog.put_back(taken)
    assert drained(backlog) == [b"a", b"b", b"c", b"d"]


def test_put_back_between() -> None:
    """§4.11, the example: 1 and 3 requeued while 0 and 2 are unacknowledged."""
    backlog = filled(*b"0 1 2 3 4 5".split(), first_seq=0)
    taken = backlog.take(4)
    backlog.put_back(taken[3:4])
    backlog.put_back(taken[1:2])
    assert drained(backlog) == [b"1", b"3", b"4", b"5"]


def test_put_back_a_share_of_a_round_robin() -> None:
    backlog = filled(*b"0 1 2 3 4 5".split(), first_seq=0)
    taken = backlog.take(5)
    backlog.put_back(taken[0::2])
    assert drained(backlog) == [b"0", b"2", b"4", b"5"]


def test_put_back_into_the_middle_of_a_run() -> None:
    backlog = Backlog()
    backlog.append(Batch(envelope(), [content(b"1")], 1), 1)
    backlog.put_back(run_of(b"5", b"6", b"7", first_seq=5, deliveries=1))
    backlog.put_back(run_of(b"3", first_seq=3, deliveries=1))
    backlog.put_back(run_of(b"4", b"8", first_seq=4, step=4, deliveries=1))
    assert drained(backlog) == [b"1", b"3", b"4", b"5", b"6", b"7", b"8"]


def test_clear_drops_all() -> None:
    backlog = filled(b"a", b"bb", b"c")
    backlog.take(1)
    backlog.clear()
    assert (backlog.count, backlog.body_bytes, backlog.head_expiry) == (0, 0, NEVER)
    backlog.append(Batch(envelope(), [content(b"z")], 1), 9)
    assert drained(backlog) == [b"z"]


def test_the_head_expiry_is_that_of_the_head() -> None:
    """§5.2: an expired message behind an unexpired one stays."""
    backlog = Backlog()
    assert backlog.head_expiry == NEVER
    backlog.append(Batch(envelope(), [content(b"a")], 1), 1, 9.0)
    backlog.append(Batch(envelope(), [content(b"b")], 1), 2, 5.0)
    assert backlog.head_expiry == 9.0
    backlog.take(1)
    assert backlog.head_expiry == 5.0


def test_stored_contents_never_join_embedded_ones() -> None:
    """The ids 2 and 3 follow two messages, but not two messages of the store."""
    backlog = Backlog()
    shared = envelope()
    backlog.append(Batch(shared, [content(b"a"), content(b"b")], 1), 1, is_indexed=True)
    backlog.append(Batch(shared, [content(b"c"), content(b"d")], 1, 2), 3, is_indexed=True)
    assert [(run.seqs, run.store_id) for run in backlog] == [(range(1, 3), 0), (range(3, 5), 2)]


# --- against the model ------------------------------------------------------------------------------------


class BacklogMachine(RuleBasedStateMachine):
    """The model: the numbers of the ready messages; whatever came back has `deliveries`."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog()
        self.next_seq = 1
        self.bodies: dict[int, bytes] = {}
        self.expiries: dict[int, float] = {}
        self.ready: list[int] = []
        self.returned: set[int] = set()
        self.out: list[Run] = []
        self.envelopes = [envelope("a"), envelope("b")]

    @rule(
        which=st.integers(0, 1),
        sizes=st.lists(st.integers(0, 3), min_size=1, max_size=6),
        expiry=st.sampled_from([NEVER, 1.0]),
    )
    def append(self, which: int, sizes: list[int], expiry: float) -> None:
        bodies = [bytes([65 + self.next_seq % 26]) * size for size in sizes]
        size = sizes[0] if len(set(sizes)) == 1 else MIXED_SIZES
        batch = Batch(self.envelopes[which], [content(body) for body in bodies], size)
        self.backlog.append(batch, self.next_seq, expiry)
        for body in bodies:
            self.bodies[self.next_seq] = body
            self.expiries[self.next_seq] = expiry
            self.ready.append(self.next_seq)
            self.next_seq += 1

    @precondition(lambda self: self.ready)
    @rule(limit=st.integers(1, 9))
    def take(self, limit: int) -> None:
        run = self.backlog.take(limit)
        assert 1 <= len(run) <= limit
        expected, self.ready = self.ready[: len(run)], self.ready[len(run) :]
        assert list(run.seqs) == expected
        assert bodies_of(run) == [self.bodies[seq] for seq in expected]
        assert {self.expiries[seq] for seq in expected} == {run.expiry}
        assert {seq in self.returned for seq in expected} == {run.deliveries > 0}
        self.out.append(run)

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0), stride=st.integers(1, 3), offset=st.integers(0, 2))
    def put_back_a_share(self, which: int, stride: int, offset: int) -> None:
        """As when a run was dealt to consumers: one returns its share, the others keep theirs."""
        run = self.out.pop(which % len(self.out))
        shares = [run[index::stride] for index in range(stride)]
        chosen = shares.pop(offset % stride)
        self.out += [share for share in shares if len(share)]
        if len(chosen):
            self._return(chosen)

    @precondition(lambda self: self.out)
    @rule(which=st.integers(0), start=st.integers(0, 5), stop=st.integers(0, 5))
    def put_back_a_piece(self, which: int, start: int, stop: int) -> None:
        run = self.out.pop(which % len(self.out))
        self.out += [part for part in (run[:start], run[max(start, stop) :]) if len(part)]
        if len(run[start:stop]):
            self._return(run[start:stop])

    def _return(self, run: Run) -> None:
        run.deliveries += 1
        self.backlog.put_back(run)
        self.ready = sorted([*self.ready, *run.seqs])
        self.returned.update(run.seqs)

    @rule()
    def clear(self) -> None:
        self.backlog.clear()
        self.ready.clear()

    @invariant()
    def counts(self) -> None:
        assert self.backlog.count == len(self.ready)
        assert self.backlog.body_bytes == sum(len(self.bodies[seq]) for seq in self.ready)
        assert self.backlog.head_expiry == (self.expiries[self.ready[0]] if self.ready else NEVER)

    def teardown(self) -> None:
        while self.ready:
            self.take(100)
        assert self.backlog.count == self.backlog.body_bytes == 0


TestBacklogAgainstAList = BacklogMachine.TestCase
TestBacklogAgainstAList.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
