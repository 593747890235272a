"""Queries of statistics: which objects, which of their fields, and how far back. Source: management §1.0."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

SAMPLES_MAX: Final = 500
"""The most increments of a range."""

AGE_MAX_S: Final = 1_000_000_000
"""The longest range in seconds: a larger number is no sensible time."""

IDS_MAX: Final = 10_000
FIELDS_MAX: Final = 200


class Range(NamedTuple):
    """The last `age_s` seconds, a sample every `incr_s`."""

    age_s: int
    incr_s: int


@dataclass(frozen=True, slots=True)
class Ranges:
    """The values whose samples are wanted; None: only their present rate.

    lengths: messages.   msg_rates: message_stats, churn.   data_rates: octets.   node_stats: of nodes.
    """

    lengths: Range | None = None
    msg_rates: Range | None = None
    data_rates: Range | None = None
    node_stats: Range | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> "Ranges":
        """Read a request's `lengths_age`, `lengths_incr` and the others; a pair without two numbers is ignored.

        Raises: ValueError for an age or an increment that isn't above 0, and for too many samples.
        """
        found = {}
        for name in _NAMES:
            age_s = _number(parameters.get(f"{name}_age"))
            incr_s = _number(parameters.get(f"{name}_incr"))
            if age_s is not None and incr_s is not None:
                found[name] = _checked(age_s, incr_s)
        return cls(**found)

    @classmethod
    def from_json(cls, value: object) -> "Ranges":
        """Read the object that `as_json` makes. Raises: ValueError."""
        if not isinstance(value, dict) or not value.keys() <= set(_NAMES):
            raise ValueError("ranges: an object of known names is expected")
        found = {}
        for name, pair in value.items():
            if not isinstance(pair, list) or len(pair) != 2 or not all(type(each) is int for each in pair):
                raise ValueError(f"ranges: {name} has to be an age and an increment")
            found[name] = _checked(*pair)
        return cls(**found)

    def as_json(self) -> dict[str, Any]:
        """Return the ranges as `from_json` reads them."""
        return {name: list(pair) for name in _NAMES if (pair := getattr(self, name)) is not None}


_NAMES: Final = tuple(each.name for each in fields(Ranges))

NO_RANGES: Final = Ranges()


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _checked(age_s: int, incr_s: int) -> Range:
    if age_s <= 0 or incr_s <= 0 or age_s > AGE_MAX_S or age_s // incr_s > SAMPLES_MAX:
        raise ValueError(f"Invalid range parameters: age {age_s}, incr {incr_s}")
    return Range(age_s, incr_s)


@dataclass(frozen=True, slots=True)
class Query:
    """The rows that are wanted, and which parts of them.

    ids: only these.   vhost: only in this one.   user: only connections, channels and consumers of this user.
    fields: only these keys of a row (and "id"); other fields are not computed.
    is_detailed: with the fields of the page of one object: its consumers, where its messages come from and go to.
    """

    ids: tuple[str, ...] | None = None
    vhost: str | None = None
    user: str | None = None
    fields: frozenset[str] | None = None
    ranges: Ranges = NO_RANGES
    is_detailed: bool = False

    def wants(self, field: str) -> bool:
        """True if rows are to have this key."""
        return self.fields is None or field in self.fields

    def wants_any(self, names: Iterable[str]) -> bool:
        """True if rows are to have one of these keys."""
        return self.fields is None or not self.fields.isdisjoint(names)

    def is_in_scope(self, vhost: str, user: str | None = None) -> bool:
        """True if the query covers objects in this vhost and, if given, of this user."""
        return self.vhost in (None, vhost) and (user is None or self.user in (None, user))

    @classmethod
    def from_json(cls, value: object) -> "Query":
        """Read the object that `as_json` makes; keys that are missing have their defaults. Raises: ValueError."""
        if not isinstance(value, dict) or not value.keys() <= _KEYS:
            raise ValueError("query: an object of known keys is expected")
        ids, named = _texts(value, "ids", IDS_MAX), _texts(value, "fields", FIELDS_MAX)
        is_detailed = value.get("is_detailed", False)
        if not isinstance(is_detailed, bool):
            raise ValueError("query: is_detailed has to be true or false")
        return cls(
            ids=None if ids is None else tuple(ids),
            vhost=_text(value, "vhost"),
            user=_text(value, "user"),
            fields=None if named is None else frozenset(named),
            ranges=Ranges.from_json(value.get("ranges", {})),
            is_detailed=is_detailed,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the query as `from_json` reads it, without values that are defaults."""
        found: dict[str, Any] = {}
        if self.ids is not None:
            found["ids"] = list(self.ids)
        if self.vhost is not None:
            found["vhost"] = self.vhost
        if self.user is not None:
            found["user"] = self.user
        if self.fields is not None:
            found["fields"] = sorted(self.fields)
        if self.ranges != NO_RANGES:
            found["ranges"] = self.ranges.as_json()
        if self.is_detailed:
            found["is_detailed"] = True
        return found


_KEYS: Final = frozenset(each.name for each in fields(Query))


def _text(value: dict[str, Any], key: str) -> str | None:
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"query: {key} has to be a text")
    return found


def _texts(value: dict[str, Any], key: str, limit: int) -> list[str] | None:
    found = value.get(key)
    if found is None:
        return None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"query: {key} has to be a list of texts")
    if len(found) > limit:
        raise ValueError(f"query: {key} has more than {limit} entries")
    return found
