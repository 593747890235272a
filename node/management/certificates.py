"""Find out until when certificates are valid: just enough of X.509 for that. Pure.

    Certificate ─► TBSCertificate ─► version?, serial number, signature, issuer, validity ─► notBefore, notAfter

Source: RFC 5280 §4.1.
"""

import binascii
import datetime
import re
from typing import Final

_PEM: Final = re.compile(r"-----BEGIN (?:TRUSTED )?CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END ")

_SEQUENCE, _INTEGER, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x02, 0x17, 0x18, 0xA0


def expiries(pem: str) -> list[datetime.datetime]:
    """Return when each certificate of a PEM file ends. Raises: ValueError for one that cannot be read."""
    return [_expiry(binascii.a2b_base64(match[1])) for match in _PEM.finditer(pem)]


def _expiry(der: bytes) -> datetime.datetime:
    certificate, _ = _content(der, _SEQUENCE)
    signed, _ = _content(certificate, _SEQUENCE)
    if signed[:1] == bytes([_VERSION]):
        _, signed = _content(signed, _VERSION)
    for tag in (_INTEGER, _SEQUENCE, _SEQUENCE):  # serial number, signature, issuer
        _, signed = _content(signed, tag)
    validity, _ = _content(signed, _SEQUENCE)
    _, rest = _content(validity, validity[0] if validity else 0)
    return _time(rest)


def _time(der: bytes) -> datetime.datetime:
    tag = der[0] if der else 0
    text, _ = _content(der, tag)
    if tag == _UTC_TIME:
        # Two digits of the year: 50 and later are of the last century.
        century = b"19" if text[:2] >= b"50" else b"20"
        text = century + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("a certificate without times")
    moment = datetime.datetime.strptime(text.decode("ascii"), "%Y%m%d%H%M%SZ")
    return moment.replace(tzinfo=datetime.UTC)


def _content(der: bytes, tag: int) -> tuple[bytes, bytes]:
    """Return the content of the first element, and the bytes behind it. Raises: ValueError."""
    if len(der) < 2 or der[0] != tag:
        raise ValueError("this is no certificate")
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start])
    if len(der) < start + length:
        raise ValueError("a certificate that is cut off")
    return der[start : start + length], der[start + length :]
