"""Certificates end when RFC 5280 §4.1 says, held against a library that knows all of X.509."""

import datetime
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.management.certificates import expiries

x509 = pytest.importorskip("cryptography.x509")


def certificate(ends: datetime.datetime) -> str:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n" * 60)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(1999, 1, 1))
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    return str(made.public_bytes(serialization.Encoding.PEM).decode())


@pytest.mark.parametrize("year", [1999, 2000, 2026, 2049, 2050, 2099, 9999])
def test_the_end(year: int) -> None:
    """Years from 2050 on are written in another way."""
    ends = datetime.datetime(year, 12, 31, 23, 59, 58)
    assert expiries(certificate(ends)) == [ends.replace(tzinfo=datetime.UTC)]


def test_several_in_a_file() -> None:
    ends = [datetime.datetime(2030, 1, day) for day in (1, 2)]
    text = "a comment\n" + "\n".join(map(certificate, ends)) + "\n-----BEGIN PRIVATE KEY-----\nAAAA\n"
    assert expiries(text) == [each.replace(tzinfo=datetime.UTC) for each in ends]


def test_none() -> None:
    assert expiries("") == []


@given(st.binary(max_size=80), st.integers(0, 400))
def test_damaged_ones_are_refused(junk: bytes, at: int) -> None:
    import base64

    good = base64.b64decode("".join(GOOD.splitlines()[1:-1]))
    damaged = good[:at] + junk
    text = f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(damaged).decode()}\n-----END CERTIFICATE-----\n"
    _either(lambda: expiries(text))


def _either(look: Callable[[], object]) -> None:
    """An answer, or ValueError."""
    try:
        look()
    except ValueError:
        return


GOOD = certificate(datetime.datetime(2030, 1, 1))
