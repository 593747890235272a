"""This module carries out the membership's outputs: heartbeats, and a broker's pause, resumption and rejoin.

Membership ─► heartbeats ─► links
           ─► NodeDown, leases ─► the metadata's leader
           ─► Pause, Resume, Rejoin ─► the process
"""

from typing import TYPE_CHECKING, Any, Final

from cluster.membership import outputs
from cluster.transport.interface import Topic
from node.clustering.waiting import boottime, tell
from node.log import phrases

if TYPE_CHECKING:
    from node.clustering.cluster import Cluster

_CUT_OFF: Final = "broker forced connection closure with reason 'shutdown'"
"""The text that clients get when the node is cut off from the others."""


class Verdicts:
    """The executor of one node's membership outputs."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._membership = cluster.membership
        self._broker_supervisor = cluster.process.broker_supervisor

    def look(self) -> None:
        """Check for changes that no call reports: the progress of the disks, and this node's status."""
        cluster = self._cluster
        if cluster.metadata is not None:
            cluster.metadata_disk.look(cluster.metadata.raft.waits_for_disk_s(boottime()))
        cluster.peers.look_at_disk(cluster.process.node, boottime())
        cluster.publisher.check()

    def tick(self, now: float) -> float:
        """Do what is due; return the time at which to call again at the latest."""
        due_s = self._membership.tick(now)
        self.carry_out()
        return due_s

    def publish(self, status: dict[str, Any]) -> None:
        """Send the status of this node to the others."""
        self._membership.set_status(status, boottime())
        self.carry_out()
        self._cluster.turn.membership_changed()

    def carry_out(self) -> None:
        """Carry out all outputs that the membership has."""
        while todo := self._membership.take_outputs():
            for each in todo:
                self._do(each)

    def _do(self, output: outputs.Output) -> None:
        match output:
            case outputs.SendHeartbeat(to, message):
                self._cluster.links.transport.send_control(to, Topic.MEMBERSHIP, message)
            case outputs.Submit(command):
                if self._cluster.metadata is not None:
                    self._cluster.metadata.submit_as_leader(command)
            case outputs.Pause(reason):
                self._pause(reason)
            case outputs.Resume():
                self._resume()
            case outputs.Rejoin(reason):
                self._rejoin(reason)
            case outputs.StatusChanged(name, status):
                self._cluster.peers.status_changed(name, status)
            case _:
                tell(output, self._cluster.logger)

    def _pause(self, reason: str) -> None:
        self._cluster.logger.warning("%s", phrases.minority())
        self._cluster.logger.warning("this node serves no clients for now: %s", reason)
        self._cluster.life.may_serve.clear()
        self._stop_serving()
        self._broker_supervisor.hold()

    def _resume(self) -> None:
        if self._broker_supervisor.is_over:
            # The broker that paused is stopping, which a slow disk may delay: other nodes are to take over its masters.
            self._membership.stopped(boottime())
        else:
            self._cluster.life.may_serve.set()
        self._broker_supervisor.release()

    def _rejoin(self, reason: str) -> None:
        self._cluster.logger.warning("this node restarts its broker: %s", reason)
        self._cluster.life.must_rejoin.set()
        self._stop_serving()
        self._broker_supervisor.restart()
        self._broker_supervisor.release()

    def _stop_serving(self) -> None:
        """Close all clients before anything else is read; the broker itself stops later (reliability §4.2)."""
        node = self._cluster.process.node
        if node is not None:
            node.suspend_listeners()
            node.close_all_connections(_CUT_OFF)
