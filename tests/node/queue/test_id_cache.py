"""The ids that have passed a deduplicating exchange: the last ones, up to a number and an age."""

from hypothesis import given
from hypothesis import strategies as st

from node.queue.id_cache import NO_EXPIRY, CachedId, IdCache, decode_ids, digest_of, encode_ids

MANY = 1 << 30


def put(cache: IdCache, seq: int, *names: str, expires_at_ms: int = NO_EXPIRY) -> None:
    """Take in an entry with these ids."""
    ids = [CachedId(digest_of(name.encode()), seq, expires_at_ms) for name in names]
    for each in ids:
        cache.put(each.digest, each.expires_at_ms)
    cache.add_entry(seq, encode_ids(ids))


def known(cache: IdCache, names: str, now_ms: int = 0) -> str:
    return "".join(name for name in names if cache.has(digest_of(name.encode()), now_ms))


def test_the_oldest_go_when_there_are_too_many() -> None:
    cache = IdCache(3)
    put(cache, 1, "a", "b")
    put(cache, 2, "c", "d", "e")
    assert cache.forget(0, MANY) == [1]
    assert (known(cache, "abcde"), len(cache)) == ("cde", 3)
    put(cache, 3, "f")
    assert cache.forget(0, MANY) == []
    assert known(cache, "abcdef") == "def"
    put(cache, 4, "g", "h", "i")
    assert cache.forget(0, MANY) == [2, 3]
    assert known(cache, "defghi") == "ghi"


def test_old_ones_go_by_time() -> None:
    cache = IdCache(100)
    put(cache, 1, "a", expires_at_ms=1000)
    put(cache, 2, "b", expires_at_ms=2000)
    put(cache, 3, "c")
    assert cache.next_expiry_ms == 1000
    assert known(cache, "abc", 999) == "abc"
    assert known(cache, "abc", 1000) == "bc"
    assert cache.forget(1000, MANY) == [1]
    assert cache.next_expiry_ms == 2000
    assert cache.forget(5000, MANY) == [2]
    assert (cache.next_expiry_ms, len(cache)) == (NO_EXPIRY, 1)


def test_one_behind_an_older_one_counts_until_that_is_gone() -> None:
    cache = IdCache(100)
    put(cache, 1, "a", expires_at_ms=9000)
    put(cache, 2, "b", expires_at_ms=1000)
    assert cache.forget(1000, MANY) == []
    assert (known(cache, "ab", 1000), len(cache)) == ("a", 2)
    assert cache.forget(9000, MANY) == [1, 2]
    assert len(cache) == 0


def test_an_id_that_comes_again_is_known_by_its_later_entry() -> None:
    cache = IdCache(100)
    put(cache, 1, "a", expires_at_ms=1000)
    put(cache, 2, "a", expires_at_ms=3000)
    assert cache.forget(2000, MANY) == [1]
    assert known(cache, "a", 2000) == "a"
    assert cache.forget(3000, MANY) == [2]
    assert known(cache, "a", 3000) == ""


def test_no_more_is_forgotten_at_once_than_asked() -> None:
    cache = IdCache(1)
    put(cache, 1, *"abcdefgh")
    assert cache.forget(0, 3) == []
    assert known(cache, "abcdefgh") == "defgh"
    assert cache.forget(0, MANY) == []
    assert known(cache, "abcdefgh") == "h"


def test_entries_that_are_joined() -> None:
    cache = IdCache(100)
    for seq, name in enumerate("abcd", 1):
        put(cache, seq, name)
    last = cache.last(3)
    assert [seq for seq, _ in last] == [2, 3, 4]
    cache.replace_last(3)
    cache.add_entry(5, b"".join(body for _, body in last))
    assert (known(cache, "abcd"), cache.entries) == ("abcd", 2)
    again = IdCache(100)
    again.learn(5, b"".join(body for _, body in last))
    assert known(again, "abcd") == "bcd"
    cache.clear()
    assert (known(cache, "abcd"), cache.entries, cache.forget(0, MANY)) == ("", 0, [])


def test_equal_values_have_one_digest() -> None:
    assert digest_of(5) == digest_of(5.0)
    assert digest_of(b"5") != digest_of(5)
    assert digest_of("true") != digest_of(b"true")
    assert len(digest_of(b"x" * 9999)) == len(digest_of(b"")) == 16


@given(
    st.lists(
        st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
    )
)
def test_any_ids_survive_an_entry(ids: list[tuple[bytes, int, int]]) -> None:
    made = [CachedId(*each) for each in ids]
    assert list(decode_ids(encode_ids(made))) == made
