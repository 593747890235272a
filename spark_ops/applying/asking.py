"""What a plan that is being carried out asks of the cluster, and what comes back. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

AskKind: TypeAlias = Literal["lock", "unlock", "observe", "step"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One question.

    number: names it.   lock, unlock and step are requests with this body; observe is a look at the whole cluster, whose
    answer is an `Observation`.   step: the id of the step.
    """

    number: int
    kind: AskKind
    body: Mapping[str, Any]
    step: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node said.   body: its JSON; None: it was none."""

    status: int
    body: Any = None

    @property
    def is_unsure(self) -> bool:
        """Whether to ask again: a node that cannot just now."""
        return self.status == 429 or self.status >= 500

    def field(self, name: str) -> Any:
        """A field of the body; None if there is none."""
        return self.body.get(name) if isinstance(self.body, Mapping) else None

    @property
    def reason(self) -> str:
        """What was wrong, for people."""
        return str(self.field("reason") or self.field("error") or f"HTTP {self.status}")


@dataclass(frozen=True, slots=True)
class Silence:
    """No node answered.   why: for people."""

    why: str
