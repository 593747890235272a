"""This module sends and answers the requests between nodes that change the members and the voters of a cluster.

    join: PutMember ─► the new node follows as an observer ─► promote: it votes
    leave, forget: it votes no more ─► RemoveMember, with its queues

Source: reliability §2.5, §3.5; rabbit_mnesia.erl v3.13.7.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from node.admin.submission import submit
from node.catalogue.commands import Command, PutMember, Refused, RemoveMember
from node.catalogue.records import ClusterMember
from node.clustering import consent, errors, requests
from node.clustering.calls import Answer
from node.clustering.requests import Applicant, Body
from node.io.control import ControlError, refused, unavailable
from node.log import phrases

if TYPE_CHECKING:
    from node.clustering.cluster import Cluster

ASK_S: Final = 1.0
"""The time that another node gets to say whether this node is a member."""
PROMOTION_S: Final = 2.0
"""The interval at which a node that should vote, and does not yet, asks to be promoted."""
CHANGE_S: Final = 20.0
"""The time that a change of the voters may take."""


class Voting:
    """One node's part in changes of the members and voters."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._is_watching = False
        self._refused: dict[str, str] = {}
        """For each member's name under which another node asked to join, that node's id; each one is logged once."""
        self.answers: Mapping[str, Answer] = {
            "describe": self._describe,
            "consent": self._consent,
            "join": self._join,
            "promote": self._promote,
            "leave": self._leave,
            "change_type": self._change_type,
            "membership": self._membership,
            "rejoin": self._rejoin,
        }
        """Handlers of other nodes' requests, by the name of the request (`Calls.offer`)."""

    # --- asking ---

    def others(self) -> list[Applicant]:
        """Return all other members, those that are up first."""
        members = self._cluster.roster.members
        known = [
            each for each in self._cluster.roster.known_members().values() if each.name != self._cluster.name
        ]
        return sorted(known, key=lambda each: not (each.name in members and members[each.name].is_up))

    async def ensure(self) -> None:
        """Ask the other members for a vote if this node should have one, now and later until it has one."""
        cluster = self._cluster
        if not self._is_watching:
            self._is_watching = True
            cluster.spawn(self._stay_voter())
        if not self._should_be_voter:
            return
        try:
            await cluster.or_given_up(self._ask_for_promotion())
        except ControlError as error:
            cluster.logger.info("this node does not vote on metadata yet: %s", error.text)

    @property
    def _should_be_voter(self) -> bool:
        metadata = self._cluster.metadata
        return (
            metadata is not None
            and self._cluster.roster.identity.type != "ram"
            and not metadata.raft.is_voter
        )

    async def _stay_voter(self) -> None:
        """Ask for a vote regularly while this node should have one, which is known once it has caught up."""
        while True:
            await asyncio.sleep(PROMOTION_S)
            # A node whose broker was stopped by an operator may be about to leave, or to be forgotten.
            if self._should_be_voter and self._cluster.roster.is_current and self._cluster.is_wanted:
                with contextlib.suppress(ControlError):
                    await self._ask_for_promotion()

    async def _ask_for_promotion(self) -> None:
        body = {"do": "promote", "node_id": self._cluster.roster.identity.node_id}
        await self._cluster.calls.ask_any(self.others(), body, CHANGE_S)

    async def check_membership(self) -> None:
        """Ask the others whether this node is a member: they may refuse its links for that. Raises: OSError if not."""
        body = {"do": "membership", "node_id": self._cluster.roster.identity.node_id}
        for other in self.others():
            try:
                answer = await self._cluster.calls.ask(other.address, body, ASK_S)
            except ControlError:
                continue
            if isinstance(answer, dict) and answer.get("is_member") is False:
                raise OSError(
                    f"{errors.disagrees(self._cluster.name, other.name)}: it was removed from the cluster; "
                    "reset it, then it may join again; with its process ended, by "
                    f"'fluffle ctl reset --offline --data {self._cluster.config.data_dir}'"
                )

    async def ask_to_rejoin(self, name: str, why: str) -> None:
        """Have another node's broker start anew as another incarnation."""
        known = self._cluster.roster.known_members().get(name)
        if known is not None:
            await self._cluster.calls.ask(known.address, {"do": "rejoin", "why": why[:200]})

    # --- answering ---

    async def _describe(self, name: str, body: Body) -> Any:
        """Return this node's identity and cluster."""
        identity = self._cluster.roster.identity
        return {
            "name": identity.name,
            "node_id": identity.node_id,
            "type": identity.type,
            "cluster_id": identity.cluster_id,
            "is_ready": bool(self._cluster.roster.members),
        }

    async def _consent(self, name: str, body: Body) -> Any:
        """Return whether the node that asks may create a cluster: `Consent`."""
        cluster = self._cluster
        if body.get("is_withdrawn") is True:
            cluster.consent.withdraw(name)
            return {"is_given": False}
        return consent.answer(cluster.consent, name, cluster.roster.cluster_id)

    async def _join(self, name: str, body: Body) -> Any:
        """Make the node that asks a member; it then follows the metadata and asks to be promoted."""
        asks = requests.applicant(body)
        if asks.name != name:
            raise refused(f"node '{name}' asked to join as '{asks.name}'")
        metadata = self._need_metadata()
        known = self._cluster.roster.members.get(name)
        if known is not None and known.node_id != asks.node_id:
            why_not = errors.other_directory(self._cluster.name, name, is_up=known.is_up)
            if self._refused.get(name) != asks.node_id:
                self._refused[name] = asks.node_id
                self._cluster.logger.warning("a node that asks to join is refused: %s", why_not)
            raise refused(why_not)
        await self._submit(PutMember(asks.name, asks.address, asks.node_id, asks.type))
        self._cluster.logger.info(phrases.node_joined(name))
        members = self._cluster.roster.known_members().values()
        return {
            "cluster_id": self._cluster.roster.identity.cluster_id,
            "members": [each._asdict() for each in members],
            "voters": sorted(metadata.raft.voters),
        }

    async def _promote(self, name: str, body: Body) -> Any:
        member = self._member(name, body)
        if member.type == "ram":
            raise refused(f"node '{name}' is a RAM node: those don't vote")
        await self.add_voter(name)
        return {}

    async def _leave(self, name: str, body: Body) -> Any:
        """Forget the node that asks; if it is no member, it has left already."""
        self._need_metadata()
        member = self._cluster.roster.members.get(name)
        if member is not None and member.node_id == requests.text(body, "node_id"):
            await self.remove(name)
        return {}

    async def _change_type(self, name: str, body: Body) -> Any:
        member = self._member(name, body)
        node_type = requests.member_type(body.get("type"))
        if node_type == "ram" and member.type != "ram":
            self.check_not_last_disc(name, errors.ONLY_DISC_NODE_RESETS)
            await self.remove_voter(name)
        await self._submit(PutMember(name, member.address, member.node_id, node_type))
        return {}

    async def _membership(self, name: str, body: Body) -> Any:
        """Return whether the node that asks is a member; null when this node cannot know."""
        cluster = self._cluster
        if not cluster.roster.is_current or not cluster.roster.members:
            return {"is_member": None}
        member = cluster.roster.members.get(name)
        return {"is_member": member is not None and member.node_id == requests.text(body, "node_id")}

    async def _rejoin(self, name: str, body: Body) -> Any:
        self._cluster.logger.error(
            "node '%s' asks this node to restart its broker: %s", name, requests.text(body, "why")
        )
        self._cluster.process.broker_supervisor.restart()
        return {}

    # --- changes of the membership ---

    async def forget(self, name: str) -> None:
        """Remove a member that doesn't run, with its queues. Raises: ControlError."""
        member = self._cluster.roster.members.get(name)
        if member is None:
            raise refused(errors.NOT_A_MEMBER)
        if member.is_up or name == self._cluster.name:
            raise errors.still_running(name)
        self._cluster.logger.info(phrases.node_removed(name))
        await self.remove(name)

    async def remove(self, name: str) -> None:
        """Take a member's vote away, and remove the member. Raises: ControlError."""
        member = self._cluster.roster.members[name]
        if member.is_up:
            raise errors.still_running(name)
        if member.type == "disc":
            self.check_not_last_disc(name, errors.ONLY_DISC_NODE_RESETS)
        await self.remove_voter(name)
        await self._submit(RemoveMember(name))

    def check_not_last_disc(self, name: str, text: str) -> None:
        """Check that another member, if there is any, keeps metadata on a disk. Raises: ControlError."""
        others = [each for each in self._cluster.roster.members.values() if each.name != name]
        if others and not any(each.type == "disc" for each in others):
            raise refused(text)

    async def add_voter(self, name: str) -> None:
        """Give a member a vote. Raises: ControlError."""
        metadata = self._need_metadata()
        if name not in metadata.raft.voters:
            await self._change(metadata.raft.add_voter, name)

    async def remove_voter(self, name: str) -> None:
        """Take a member's vote away. Raises: ControlError."""
        metadata = self._need_metadata()
        if name in metadata.raft.voters:
            await self._change(metadata.raft.remove_voter, name)

    async def _change(self, change: Callable[[str, Callable[[Any], None]], None], name: str) -> None:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(result: Any) -> None:
            if not answer.done():
                answer.set_result(result)

        change(name, done)
        try:
            async with asyncio.timeout(CHANGE_S):
                result = await answer
        except TimeoutError:
            raise unavailable(errors.NO_MAJORITY) from None
        if isinstance(result, str) and result:
            raise unavailable(result)

    async def _submit(self, command: Command[Any]) -> Any:
        result = await submit(self._need_metadata().log, command)
        if isinstance(result, Refused):
            if result.text == errors.NO_MAJORITY:
                raise unavailable(result.text)
            raise refused(result.text)
        return result

    def _member(self, name: str, body: Body) -> ClusterMember:
        """Return the member that asks. Raises: ControlError if it is none, or has another data directory."""
        member = self._cluster.roster.members.get(name)
        if member is None or member.node_id != requests.text(body, "node_id"):
            raise refused(errors.disagrees(name, self._cluster.name))
        return member

    def _need_metadata(self) -> Any:
        if self._cluster.metadata is None or not self._cluster.roster.members:
            raise unavailable(f"node '{self._cluster.name}' belongs to no cluster yet")
        return self._cluster.metadata
