"""Reading ahead: what comes, and in what order, is as without it; one thing is begun early, and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horosphere.data.read_ahead import ReadAhead, ahead


class Disk:
    """Remembers what was begun and what was waited for."""

    def __init__(self, broken=()):
        self.begun, self.read, self.broken = [], [], broken

    def __call__(self, *place):
        self.begun.append(place)

        def read():
            if place in self.broken:
                raise OSError(f"{place} is torn")
            self.read.append(place)
            return place

        return read


def cut(batch, micro):
    return [range(i, min(i + micro, batch)) for i in range(0, batch, micro)]


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 4), st.integers(1, 4))
def test_batches_come_as_asked_for_and_each_is_read_once(batch, micro, first, steps):
    order, last = cut(batch, micro), first + steps
    asked = [(step, rows) for step in range(first, last) for rows in order]
    disk = Disk()
    read = ReadAhead(disk, order, last)
    for number, place in enumerate(asked, start=1):
        later = read(*place)
        assert disk.begun == asked[: number + 1]  # the next one, before anybody waits for this one
        assert later() == place
    assert disk.begun == disk.read == asked  # nothing beyond the last step


def test_what_comes_out_of_turn_is_read_too():
    """A run that is resumed, and rows that are not of the plan."""
    disk = Disk()
    read = ReadAhead(disk, cut(4, 2), steps=9)
    assert read(0, range(2))() == (0, range(2))
    assert read(5, range(2, 4))() == (5, range(2, 4))
    assert read(6, range(2))() == (6, range(2))
    assert read(3, range(1))() == (3, range(1))
    assert len(read.begun) == 0
    assert disk.begun.count((6, range(2))) == 1


def test_never_more_than_one_is_held():
    read = ReadAhead(Disk(), cut(6, 1), steps=5)
    for step in range(5):
        for rows in cut(6, 1):
            read(step, rows)
            assert len(read.begun) <= 1


def test_an_error_of_a_batch_comes_with_that_batch():
    disk = Disk(broken=[(1, range(2))])
    read = ReadAhead(disk, [range(2)], steps=3)
    assert read(0, range(2))() == (0, range(2))  # the torn one is begun already
    torn = read(1, range(2))
    with pytest.raises(OSError, match="is torn"):
        torn()
    assert read(2, range(2))() == (2, range(2))


@given(st.integers(0, 8))
def test_ahead_gives_all_in_order_and_begins_one_early(count):
    disk, seen = Disk(), []
    for number, place in enumerate(ahead(disk, count), start=1):
        seen.append(place)
        assert len(disk.begun) == min(number + 1, count)
    assert seen == disk.begun == disk.read == [(number,) for number in range(count)]


def test_ahead_passes_an_error_on_and_stops():
    disk = Disk(broken=[(2,)])
    found = ahead(disk, 5)
    assert [next(found), next(found)] == [(0,), (1,)]
    with pytest.raises(OSError, match="is torn"):
        next(found)
    assert disk.begun == [(0,), (1,), (2,)]
    assert list(found) == []


def test_who_has_seen_enough_leaves_the_rest_unread():
    disk = Disk()
    found = ahead(disk, 100)
    next(found)
    found.close()
    assert disk.begun == [(0,), (1,)]
