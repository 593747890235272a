"""TLS listeners need a context made from `ssl_options`, and for EXTERNAL a user made from a client's certificate.

Names are made as RabbitMQ makes them, so that users it knows keep working: the distinguished name is written
as RFC 4514 has it (last part first, `CN=alice,O=Acme`), with its list of short names. Source: rabbit_ssl.erl
and rabbit_cert_info.erl v3.10.8, amqp-behaviour §1.3.
"""

import datetime
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

from node.client.endpoint import TlsFacts
from node.config.config import CertificateLogin, TlsOptions
from node.config.file import ConfigError

_VERSIONS: Final = {
    "tlsv1": (ssl.TLSVersion.TLSv1, ssl.OP_NO_TLSv1),
    "tlsv1.1": (ssl.TLSVersion.TLSv1_1, ssl.OP_NO_TLSv1_1),
    "tlsv1.2": (ssl.TLSVersion.TLSv1_2, ssl.OP_NO_TLSv1_2),
    "tlsv1.3": (ssl.TLSVersion.TLSv1_3, ssl.OP_NO_TLSv1_3),
}
_TLS_1_3_CIPHER: Final = "TLS_"
"""The beginning of the names of TLS 1.3's cipher suites in OpenSSL; no other suite has it."""

_SHORT_NAMES: Final = {
    "surname": "SN",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "title": "TITLE",
    "countryName": "C",
    "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "userId": "UID",
}
_SAN_TYPES: Final = {"dns": "DNS", "ip": "IP Address", "email": "email", "uri": "URI"}
_CIPHERS: Final = ("aes", "chacha20", "camellia128", "camellia256", "aria128", "aria256", "des")
_AEAD: Final = frozenset({"gcm", "ccm", "ccm8", "poly1305"})
"""Ciphers that authenticate by themselves, without a hash."""
_VALIDITY: Final = ("notBefore", "notAfter")
_ESCAPED_ANYWHERE: Final = frozenset(b'"+,;<>\\')


class NoCertificateUser(Exception):
    """EXTERNAL cannot find the client's user; the text is RabbitMQ's reason for the log."""


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the TLS context of a listener.

    `ssl_options.ciphers` reaches TLS 1.2 and below only: Python cannot choose among the suites of 1.3. A list of
    1.3's suites alone leaves 1.3 as the only version, as it does in RabbitMQ.

    Raises: ConfigError when a file or a name is not usable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if options.honor_cipher_order:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    ciphers = [name for name in options.ciphers if not name.startswith(_TLS_1_3_CIPHER)]
    only_1_3 = bool(options.ciphers) and not ciphers
    _set_versions(context, ("tlsv1.3",) if only_1_3 else options.versions)
    what = "ssl_options.ciphers"
    try:
        if ciphers:
            context.set_ciphers(":".join(ciphers))
        what = f"ssl_options.certfile, ssl_options.keyfile ({options.certificate_file})"
        context.load_cert_chain(
            options.certificate_file, options.key_file, lambda: options.key_password or ""
        )
        if options.ca_file is not None:
            what = f"ssl_options.cacertfile ({options.ca_file})"
            context.load_verify_locations(options.ca_file)
        if options.dh_file is not None:
            what = f"ssl_options.dhfile ({options.dh_file})"
            context.load_dh_params(options.dh_file)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError([f"{what}: {error}"]) from error
    if options.verify_peer:
        context.verify_mode = ssl.CERT_REQUIRED if options.require_peer_certificate else ssl.CERT_OPTIONAL
    return context


def _set_versions(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    allowed = [_VERSIONS[name][0] for name in names]
    context.minimum_version = min(allowed)
    context.maximum_version = max(allowed)
    for version, forbid in _VERSIONS.values():
        # Forbid a version in a gap between the lowest and the highest, such as 1.2 in 1.3 and 1.1.
        if version not in allowed and min(allowed) < version < max(allowed):
            context.options |= forbid


def certificate_user(
    certificate: Mapping[str, Any] | None, login: CertificateLogin, *, verify_peer: bool
) -> str:
    """Return the user that a client's certificate names.

    certificate: what `SSLObject.getpeercert()` returned; None or empty when the client sent none.
    verify_peer: whether certificates are checked at all; a name in an unchecked one is no user.

    Raises: NoCertificateUser.
    """
    if not verify_peer:
        raise NoCertificateUser("TLS configuration is unsafe")
    if not certificate:
        raise NoCertificateUser("connection peer presented no TLS (x.509) certificate")
    subject = certificate.get("subject", ())
    if login.source == "distinguished_name":
        return distinguished_name(subject)
    if login.source == "common_name":
        # Several are joined as RabbitMQ does.
        names = [value for parts in subject for name, value in parts if name == "commonName"]
        user = ",".join(names)
    else:
        wanted = _SAN_TYPES[login.san_type]
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == wanted]
        user = names[login.san_index] if login.san_index < len(names) else ""
    if not user:
        raise NoCertificateUser("no name found")
    return user


def tls_facts(connection: ssl.SSLObject) -> TlsFacts:
    """Return a connection's TLS parameters. Suites of TLS 1.3 name no key exchange: RabbitMQ says `any` for that."""
    suite, version, _ = connection.cipher() or ("", "", 0)
    certificate: Mapping[str, Any] = connection.getpeercert() or {}
    # OpenSSL's names: ECDHE-RSA-AES256-GCM-SHA384, ECDHE-RSA-AES128-SHA, AES256-SHA, TLS_AES_256_GCM_SHA384.
    is_new = suite.startswith(_TLS_1_3_CIPHER)
    parts = (
        re.sub("AES(?=[0-9])", "AES_", suite.removeprefix(_TLS_1_3_CIPHER))
        .replace("_", "-")
        .lower()
        .split("-")
    )
    at = 0 if is_new else next((n for n, part in enumerate(parts) if part in _CIPHERS), 0)
    cipher = [part for part in parts[at:] if not part.startswith("sha")]
    is_aead = bool(_AEAD.intersection(cipher))
    return TlsFacts(
        protocol=(connection.version() or version).lower().replace("sslv", "ssl"),
        key_exchange="any" if is_new else "_".join(parts[:at]) or "rsa",
        cipher="_".join(cipher if is_aead else [*cipher, "cbc"]),
        hash="aead" if is_aead else parts[-1],
        subject=distinguished_name(certificate.get("subject", ())),
        issuer=distinguished_name(certificate.get("issuer", ())),
        validity=" - ".join(_moment(certificate[end]) for end in _VALIDITY) if certificate else "",
    )


def _moment(text: str) -> str:
    """Return a time of a certificate as RabbitMQ writes it: `2026-11-21T10:00:00Z`."""
    moment = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(text), datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Return a subject (or issuer) of `getpeercert` in RFC 4514's order and RabbitMQ's spelling."""
    return ",".join(
        "+".join(f"{_short_name(name)}={_escape(value)}" for name, value in parts)
        for parts in reversed(subject)
    )


def _short_name(name: str) -> str:
    if name in _SHORT_NAMES:
        return _SHORT_NAMES[name]
    # An attribute that RabbitMQ has no name for is written as its number; OpenSSL knows more names than RabbitMQ.
    return _OTHER_KINDS.get(name, name)


_OTHER_KINDS: Final = {
    "description": "2.5.4.13",
    "businessCategory": "2.5.4.15",
    "postalAddress": "2.5.4.16",
    "postalCode": "2.5.4.17",
    "streetAddress": "2.5.4.9",
    "name": "2.5.4.41",
    "x500UniqueIdentifier": "2.5.4.45",
    "dnQualifier": "2.5.4.46",
    "organizationIdentifier": "2.5.4.97",
    "unstructuredName": "1.2.840.113549.1.9.2",
    "INN": "1.2.643.3.131.1.1",
    "OGRN": "1.2.643.100.1",
    "SNILS": "1.2.643.100.3",
    "jurisdictionLocalityName": "1.3.6.1.4.1.311.60.2.1.1",
    "jurisdictionStateOrProvinceName": "1.3.6.1.4.1.311.60.2.1.2",
    "jurisdictionCountryName": "1.3.6.1.4.1.311.60.2.1.3",
}


def _escape(value: str) -> str:
    """Apply RFC 4514's escapes; as in RabbitMQ, every byte that is not printable ASCII becomes hexadecimal."""
    data = value.encode("utf-8", "surrogateescape")
    last = len(data) - 1
    out: list[str] = []
    for position, byte in enumerate(data):
        edge = (position == 0 and byte in b" #") or (position == last and byte == 0x20)
        if edge or byte in _ESCAPED_ANYWHERE:
            out.append(f"\\{chr(byte)}")
        elif byte < 0x20 or byte >= 0x7E:  # `~` too: RabbitMQ's test is "C >= 126"
            out.append(f"\\{byte:02X}")
        else:
            out.append(chr(byte))
    return "".join(out)
