"""The exchanges, queues and policies of one vhost."""

from hypothesis import given
from hypothesis import strategies as st

from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import ClearPolicy, Command, DeclareQueue, PutVhost, SetPolicy

_changes: st.SearchStrategy[Command[bool]] = st.one_of(
    st.builds(
        SetPolicy,
        st.just("v"),
        st.sampled_from(["p", "q", "r"]),
        st.sampled_from(["", "^a", "b$", "x"]),
        st.sampled_from([{"max-length": 1}, {"max-length": 2}, {"expires": 9}]),
        st.sampled_from([0, 1, 1.5]),
        st.sampled_from(["all", "queues", "exchanges"]),
        operator=st.booleans(),
    ),
    st.builds(ClearPolicy, st.just("v"), st.sampled_from(["p", "q", "r"]), operator=st.booleans()),
)


@given(st.lists(_changes, max_size=8))
def test_only_what_a_policy_concerns_is_looked_at_again(changes: list[Command[bool]]) -> None:
    """Each queue has the policy that it would get if declared now, though only those concerned are looked at again."""
    catalogue = Catalogue()
    catalogue.apply(PutVhost("v"))
    for name in ("a", "ab", "b", "ba"):
        catalogue.apply(DeclareQueue("v", name, name))
    for change in changes:
        catalogue.apply(change)
        for queue in catalogue.queues("v"):
            expected = catalogue.policy_of_new_queue("v", queue.name, queue.type)
            assert catalogue.effective_policy(queue) == expected
