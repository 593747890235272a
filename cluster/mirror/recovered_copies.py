"""The copies of mirrored queues that a node has found on its disk, until it is known whether they are wanted."""

from node.catalogue.mirrors.views import View
from node.queue.mirroring import RecoveredCopy


class RecoveredCopies(dict[str, RecoveredCopy]):
    """The recovered copies of the node `here`, by uid of the queue."""

    def __init__(self, here: str) -> None:
        super().__init__()
        self._here = here

    def sift(self, uid: str, view: View | None) -> RecoveredCopy | None:
        """Return a queue's copy, if the queue may still come back from it; else remove it."""
        copy = self.get(uid)
        if copy is not None and (view is None or view.copy_to_keep(self._here) != copy.copy):
            self.discard(uid)
            return None
        return copy

    def discard(self, uid: str) -> None:
        """Remove a queue's copy, if there is one: the queue continues without it, or is gone."""
        copy = self.pop(uid, None)
        if copy is not None:
            copy.storage.drop()
