"""Erlang's hash and the jump through buckets give what Erlang 25.2 gave for the same terms."""

from hypothesis import given
from hypothesis import strategies as st

from node.amqp.field_table import Field, array, boolean, long, longstr, table
from node.plugins.exchanges.erlang_hash import UNDEFINED, Atom, Term, jump, phash2, term_of

HASHES: list[tuple[Term, int]] = [
    (b"", 13708901),
    (b"a", 112802447),
    (b"abc", 98228475),
    (b"abcdefgh", 72227102),
    (b"abcdefghijk", 96993671),
    (b"abcdefghijkl", 15432855),
    (b"abcdefghijklm", 11441572),
    (b"key-of-some-length-that-is-long", 75532332),
    (0, 88723725),
    (1, 2614250),
    (-1, 44071773),
    (255, 44734653),
    (1000, 65787489),
    (134217727, 112602999),
    (134217728, 12354923),
    (-134217728, 69672967),
    (-134217729, 76739502),
    (4294967296, 95057355),
    (9223372036854775807, 28179613),
    (-9223372036854775808, 126213383),
    (18446744073709551615, 53435350),
    (0.0, 20875736),
    (1.5, 10380315),
    (-2.25, 106798634),
    (Atom("undefined"), 45914356),
    (Atom("true"), 506293),
    (Atom("longstr"), 56945346),
    ([], 113427502),
    ([b""], 38220213),
    ([b"a"], 53691870),
    ([b"a", b"b"], 3094894),
    ([1, 2, 3, 4, 5], 66056394),
    ([1, b"x", 2], 50309542),
    ([[]], 96416884),
    ((Atom("longstr"), b"x"), 14442427),
    ((Atom("signedint"), 5), 40839585),
    ((Atom("signedint"), -5), 39932925),
    ((Atom("long"), 5000000000), 19715522),
    ((Atom("bool"), Atom("true")), 32030443),
    ((Atom("void"), Atom("undefined")), 27077197),
    ((Atom("double"), 1.5), 115320697),
    ((Atom("timestamp"), 1700000000), 59280699),
    ((Atom("decimal"), (2, 314)), 113508173),
    ((Atom("array"), [(Atom("longstr"), b"a"), (Atom("signedint"), 1)]), 40191755),
    ((Atom("table"), [(b"k", Atom("longstr"), b"v"), (b"n", Atom("signedint"), 1)]), 31696134),
    ((Atom("array"), []), 86211673),
]
"""Terms, and what `erlang:phash2/1` says of them."""

JUMPS = [
    (0, 1, 0),
    (0, 2, 0),
    (0, 3, 0),
    (0, 7, 4),
    (0, 100, 47),
    (0, 1000, 807),
    (0, 4000000000, 3143911474),
    (1, 1, 0),
    (1, 2, 0),
    (1, 3, 2),
    (1, 7, 3),
    (1, 100, 29),
    (1, 1000, 856),
    (1, 4000000000, 1125753337),
    (12345, 1, 0),
    (12345, 2, 0),
    (12345, 3, 0),
    (12345, 7, 0),
    (12345, 100, 61),
    (12345, 1000, 485),
    (12345, 4000000000, 470348383),
    (134217727, 1, 0),
    (134217727, 2, 0),
    (134217727, 3, 2),
    (134217727, 7, 6),
    (134217727, 100, 74),
    (134217727, 1000, 220),
    (134217727, 4000000000, 3958840415),
    (99999999, 1, 0),
    (99999999, 2, 1),
    (99999999, 3, 2),
    (99999999, 7, 6),
    (99999999, 100, 37),
    (99999999, 1000, 603),
    (99999999, 4000000000, 2650680849),
]
"""Key, number of buckets, and the bucket by RabbitMQ's function with Erlang's `rand:seed_s(exs1024, …)`."""


def test_terms_have_erlangs_hashes() -> None:
    assert [(term, phash2(term)) for term, _ in HASHES] == HASHES


def test_jumps_are_rabbitmqs() -> None:
    assert [(key, buckets, jump(key, buckets)) for key, buckets, _ in JUMPS] == JUMPS


def test_fields_are_tuples_of_type_and_value() -> None:
    assert term_of(longstr("a")) == ("longstr", b"a")
    assert term_of(long(5)) == ("long", 5)
    assert term_of(boolean(False)) == ("bool", "false")
    assert term_of(Field("V", None)) == ("void", UNDEFINED)
    assert term_of(Field("D", (2, 314))) == ("decimal", (2, 314))
    nested = table({"k": array([longstr("a")])})
    assert term_of(nested) == ("table", [(b"k", "array", [("longstr", b"a")])])


@given(st.integers(0, 2**27 - 1), st.integers(1, 2000))
def test_a_key_moves_to_a_new_bucket_or_not_at_all(key: int, buckets: int) -> None:
    before, after = jump(key, buckets), jump(key, buckets + 1)
    assert 0 <= before < buckets
    assert after in (before, buckets)


def test_keys_are_spread_evenly() -> None:
    counts = [0] * 10
    for number in range(5000):
        counts[jump(phash2(b"key %d" % number), 10)] += 1
    assert 400 < min(counts) <= max(counts) < 600
