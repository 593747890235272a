"""Remember what voters had acknowledged, so that a voter whose disk went back in time is found.

A member remembers how far the committed part of the log is that each voter has told it to have safe, whether or not it
leads. A voter that comes back with less has an old copy of its data directory, or a disk that lost what it
had synced. A majority was counted with it; so until its log reaches as far again it must not vote, or committed
entries might be voted away. The voter is told when a link to it comes up. This is remembered as long as the process
that has it.
"""

from collections.abc import Callable, Mapping


class Debts:
    """The acknowledgements that one member remembers of others, and others of it.   report: takes a line for the
    log.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._acknowledged: dict[str, int] = {}
        """By voter: the index up to which the voter had all entries, and all were committed."""
        self._owed = 0

    def heard(self, voter: str, index: int) -> None:
        """Note that a voter has all entries up to this one safe, and that they are committed."""
        self._acknowledged[voter] = max(index, self._acknowledged.get(voter, 0))

    def heard_all(self, indexes: Mapping[str, int], committed: int) -> None:
        """Note up to which entries voters have told to have all safe.   committed: the last committed entry."""
        for voter, index in indexes.items():
            self.heard(voter, min(index, committed))

    def keep(self, voters: frozenset[str]) -> None:
        """Keep only these voters: a removed one may come back with nothing."""
        self._acknowledged = {name: index for name, index in self._acknowledged.items() if name in voters}

    def of(self, voter: str) -> int:
        """Return the index that a voter's log must reach; 0: not known."""
        return self._acknowledged.get(voter, 0)

    def told(self, index: int, last_index: int) -> None:
        """Note that another member remembers this one to have had all entries up to `index`; it has them up to
        `last_index`.
        """
        if index > max(last_index, self._owed):
            self._owed = index
            self._report(
                f"this node had told others that it has entry {index} of the Raft log, and it has only {last_index}: "
                "its data directory is an old copy, or its disk lost what it had synced. It does not vote until it has "
                "caught up"
            )

    def owes(self, last_index: int) -> bool:
        """True if this member may not vote, with a log that ends at `last_index`."""
        if self._owed and last_index >= self._owed:
            self._owed = 0
            self._report("this node has caught up with the Raft log, and votes again")
        return self._owed > 0
