"""Checks of the URIs in parameters of federation and shovels, with the texts that RabbitMQ has for both.

Source: RabbitMQ 3.10.8, `validate_uri` of `rabbit_federation_parameters` and `rabbit_shovel_parameters`.
"""

from typing import Final

from node.amqp_client.uri import InvalidUri, parse, without_password
from node.catalogue.parameter_validation import term
from node.catalogue.records import Json

URIS_MAX: Final = 100
"""The most URIs of an upstream, or of one end of a shovel."""


def check_uris(name: str, value: Json) -> list[str]:
    """Check that `value` is a URI, or a list of them; the first problem is told, without the password."""
    if isinstance(value, str):
        return _check_uri(value)
    if not isinstance(value, list):
        return [f"{name} should be list, actually was {term(value)}"]
    if not value:
        return [f"{name} should be a non-empty list"]
    if len(value) > URIS_MAX:
        return [f"{name} has more than {URIS_MAX} URIs"]
    for each in value:
        if not isinstance(each, str):
            return [f"{name} should be list, actually was {term(each)}"]
        if problems := _check_uri(each):
            return problems
    return []


def vhosts_here(uris: Json, default_vhost: str = "/") -> set[str]:
    """Return the vhosts of this broker that the URIs without a host name.   uris: passed `check_uris`."""
    texts = uris if isinstance(uris, list) else [uris]
    found = (parse(text, default_vhost) for text in texts if isinstance(text, str))
    return {uri.vhost for uri in found if uri.host is None}


def _check_uri(text: str) -> list[str]:
    try:
        parse(text)
    except InvalidUri as invalid:
        shown = without_password(text)
        return [f'"{shown}" not a valid URI: {{{invalid},"{shown}"}}']
    return []
