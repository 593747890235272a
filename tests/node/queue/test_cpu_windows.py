"""CPU time is divided among the queues that worked in a window, without inventing or losing any."""

from hypothesis import given
from hypothesis import strategies as st

from node.queue.cpu_windows import EVERY, LEAD_NS, ROUND, WEIGHT_MAX, WORK_BYTES, CpuWindows


class Costs:
    """The costs of one queue."""

    def __init__(self) -> None:
        self.cpu_ns = self.client_ns = 0


class Thread:
    """A thread's CPU clock, and the windows that look at it. The first window is open."""

    def __init__(self) -> None:
        self.now = 0
        self.windows = CpuWindows(lambda: self.now)
        self.open()

    def open(self) -> None:
        while not self.windows.is_open:
            self.windows.end_turn()

    def work(self, costs: Costs, spent_ns: int, *, size: int = 0, for_client: bool = False) -> None:
        mark = self.windows.enter()
        self.now += spent_ns
        self.windows.leave(costs, mark)
        self.windows.worked(costs, size, for_client=for_client)


def test_each_fifth_turn_is_a_window() -> None:
    """The times of one turn count for five."""
    thread = Thread()
    seen = []
    for _ in range(3 * EVERY):
        seen.append(thread.windows.is_open)
        thread.windows.end_turn()
    assert seen == [True, False, False, False, False] * 3


def test_work_counts_for_five() -> None:
    """A queue's own work is in its account, five times."""
    thread, costs = Thread(), Costs()
    thread.work(costs, 1000)
    thread.windows.end_turn()
    assert (costs.cpu_ns, costs.client_ns) == (EVERY * 1000, 0)


def test_work_within_work_belongs_to_the_inner_queue() -> None:
    """A message that dies in one queue and comes into another one costs each of them its own part."""
    thread, outer, inner = Thread(), Costs(), Costs()
    mark = thread.windows.enter()
    thread.now += 100
    thread.work(inner, 30)
    thread.now += 100
    thread.windows.leave(outer, mark)
    assert (outer.cpu_ns, inner.cpu_ns) == (200 * EVERY, 30 * EVERY)


def test_the_rest_is_divided_by_work_and_bytes() -> None:
    """A large message has a larger part of what sockets cost; clients of this node are kept apart."""
    thread, small, large = Thread(), Costs(), Costs()
    thread.work(small, 0, for_client=True)
    thread.work(large, 0, size=2 * WORK_BYTES)
    thread.now += 4000
    thread.windows.end_turn()
    assert (small.cpu_ns, small.client_ns) == (0, 1000 * EVERY)
    assert (large.cpu_ns, large.client_ns) == (3000 * EVERY, 0)


def test_timers_before_the_first_work_are_no_queues() -> None:
    """On a node with little traffic a window lasts long, and the node's own timers run in it."""
    thread, costs = Thread(), Costs()
    thread.now += 50 * LEAD_NS
    thread.work(costs, 0, for_client=True)
    thread.windows.end_turn()
    assert costs.client_ns == LEAD_NS * EVERY


def test_frames_that_are_decoded_before_the_first_work_are_the_queues() -> None:
    """The window knows that there is work for queues before it is known for which ones."""
    thread, costs = Thread(), Costs()
    thread.now += 10 * LEAD_NS
    thread.windows.begin()
    thread.now += 20 * LEAD_NS
    thread.windows.begin()
    thread.work(costs, 0)
    thread.windows.end_turn()
    assert costs.cpu_ns == 21 * LEAD_NS * EVERY


def test_a_window_that_begins_without_work_is_no_queues() -> None:
    """Frames may be for queues that are gone."""
    thread, costs = Thread(), Costs()
    thread.windows.begin()
    thread.now += 10_000
    thread.windows.end_turn()
    thread.open()
    thread.work(costs, 10)
    thread.windows.end_turn()
    assert costs.cpu_ns == 10 * EVERY


def test_a_window_without_work_is_no_queues() -> None:
    """The node's own work stays with the node, also in the windows after it."""
    thread, costs = Thread(), Costs()
    thread.now += 10_000
    thread.windows.end_turn()
    thread.open()
    thread.work(costs, 10)
    thread.windows.end_turn()
    assert costs.cpu_ns == 10 * EVERY


def a_round(thread: Thread, costs: Costs, *, window_ns: int, turn_ns: int) -> int:
    """Let as many windows pass as count together, with work in each turn; return the time of all."""
    began = thread.now
    for _ in range(ROUND):
        thread.open()
        thread.work(costs, window_ns)
        thread.windows.end_turn()
        thread.now += turn_ns * (EVERY - 1)
    return thread.now - began


def test_queues_are_given_no_more_time_than_the_thread_has() -> None:
    """A turn takes longer while it is measured; five times its time would be more than all turns took."""
    thread, costs = Thread(), Costs()
    for _ in range(2):  # it takes a round until it is known
        a_round(thread, costs, window_ns=1500, turn_ns=1000)
    before = costs.cpu_ns
    spent_ns = a_round(thread, costs, window_ns=1500, turn_ns=1000)
    assert abs(costs.cpu_ns - before - spent_ns) <= 0.01 * spent_ns


def test_long_work_outside_of_windows_is_not_multiplied_without_a_limit() -> None:
    thread, costs = Thread(), Costs()
    for _ in range(2):
        a_round(thread, costs, window_ns=10, turn_ns=10_000)
    before = costs.cpu_ns
    a_round(thread, costs, window_ns=10, turn_ns=10_000)
    assert costs.cpu_ns - before == ROUND * 10 * WEIGHT_MAX


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 5000),
            st.integers(0, 100_000),
            st.booleans(),
            st.integers(0, 5000),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_all_accounts_together_have_the_time_of_the_window(
    history: list[tuple[int, int, int, bool, int]],
) -> None:
    """Nothing is lost but what rounding takes, and nothing counts twice."""
    thread, accounts = Thread(), [Costs() for _ in range(4)]
    for place, spent_ns, size, for_client, beside_ns in history:
        thread.work(accounts[place], spent_ns, size=size, for_client=for_client)
        thread.now += beside_ns
    spent_ns = thread.now * EVERY
    thread.windows.end_turn()
    shared_ns = sum(costs.cpu_ns + costs.client_ns for costs in accounts)
    assert spent_ns - 8 <= shared_ns <= spent_ns
