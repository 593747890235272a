"""A file of records that may be damaged: what is good in it, and findings about the rest."""

from collections.abc import Iterator
from typing import Final

from node.store.findings import Damage, Finding
from node.store.records import HEADER_BYTES, RECORD_HEAD_BYTES, NewerFormat, check_header, read_records

TORN_TEXT: Final = "the file ends inside a record, as after a crash in the middle of a write"


class RecordFile:
    """Iterate over offset and payload of each good record, once; then `findings` and `good` are complete.

    data: the whole file.   header: the bytes that it must begin with.
    meaning: what the loss of one of its records means, for the operator.
    good: start and stop of each stretch without bad bytes, in bytes.
    Raises NewerFormat, when it is made.
    """

    def __init__(self, path: str, data: bytes, header: bytes, meaning: str) -> None:
        self.path = path
        self.data = data
        self.findings: list[Finding] = []
        self.good: list[tuple[int, int]] = []
        self._header = header
        self._meaning = meaning
        self._is_rejected = False
        try:
            self._is_whole = check_header(data, header)
        except NewerFormat as newer:
            raise NewerFormat(f"{path}: {newer}") from None

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        data = self.data
        if not self._is_whole and self._begins_torn():
            return
        records = read_records(data)
        start = stop = min(HEADER_BYTES, len(data))
        for offset, payload in records:
            end = offset + RECORD_HEAD_BYTES + len(payload)
            self._is_rejected = False
            yield offset, payload
            if offset != stop:
                self._add_good(start, stop)
                start = offset
            if self._is_rejected:
                self._add_good(start, offset)
                start = end
            stop = end
        self._add_good(start, stop)
        assert records.end is not None, "they were all read"
        for offset, length in records.end.bad:
            self._add(Damage.CORRUPT, offset, length, f"these bytes are no record: {self._meaning}")
        if records.end.offset < len(data):
            self._add(Damage.TORN, records.end.offset, len(data) - records.end.offset, TORN_TEXT)
        self.findings.sort(key=_offset)

    def reject(self, offset: int, payload: bytes, reason: str) -> None:
        """Count the record that came last as bad: it says something impossible, though its crc is right."""
        self._is_rejected = True
        length = RECORD_HEAD_BYTES + len(payload)
        self._add(Damage.CORRUPT, offset, length, f"an invalid record ({reason}): {self._meaning}")

    @property
    def needs_rewrite(self) -> bool:
        """True if nothing may be appended to the file as it is."""
        return bool(self.findings) or not self._is_whole

    @property
    def is_torn(self) -> bool:
        """True if the file ends inside a record."""
        return any(finding.damage is Damage.TORN for finding in self.findings)

    def _begins_torn(self) -> bool:
        """True if the file has no more than the start of a header, from an attempt to create it.

        Else the header is damaged; records can be told by their crcs all the same.
        """
        data = self.data
        # A power loss may leave the length of what was written, and zeros for its bytes.
        if not self._header.startswith(data.rstrip(b"\0")):
            self._add(Damage.CORRUPT, 0, min(HEADER_BYTES, len(data)), "the header of the file is damaged")
            return False
        if data:
            self._add(Damage.TORN, 0, len(data), TORN_TEXT)
        return True

    def _add(self, damage: Damage, offset: int, length: int, text: str) -> None:
        self.findings.append(Finding(damage, self.path, offset, length, text))

    def _add_good(self, start: int, stop: int) -> None:
        if start < stop:
            self.good.append((start, stop))


def _offset(finding: Finding) -> int:
    return finding.offset
