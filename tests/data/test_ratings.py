"""Ratings: what tables hold, splits that leak nothing, draws of what was not seen, and mistakes named by their row."""

import gzip
from importlib.util import find_spec

import numpy as np
import pytest

from horosphere.data.ratings import (
    Ratings,
    Seen,
    by_label,
    last_held_out,
    movielens,
    open_ratings,
    random_split,
    read_learned,
    read_ratings,
    write_learned,
)
from horosphere.errors import UserError

needs_recbole = pytest.mark.skipif(find_spec("recbole") is None, reason="needs the files of recbole")


def drawn(users=7, items=11, share=0.5, seed=0, timed=True):
    """Ratings of a random half of the pairs; each user has at least one."""
    random = np.random.default_rng(seed)
    there = random.random((users, items)) < share
    there[np.arange(users), random.integers(items, size=users)] = True
    user, item = (np.ascontiguousarray(part) for part in np.nonzero(there))
    order = random.permutation(len(user))
    labels = [f"u{n}" for n in range(users)], [f"i{n}" for n in range(items)]
    time = random.permutation(len(user)).astype(float) if timed else None
    return Ratings(*labels, user[order], item[order], random.integers(1, 6, len(user)), time)


@pytest.fixture
def write(tmp_path):
    def write(text, name="mine.csv"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return str(path)

    return write


# -- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "ann,tea,5\nann,rum,1\nbob,rum,4\n"),
        ("a.tsv", "ann\ttea\t5\nann\trum\t1\n\nbob\trum\t4\n"),
        ("a.csv.gz", "user,item,rating\nann,tea,5\nann,rum,1\nbob,rum,4"),
        ("a.csv", "rating,userId,movieId,sort\n5,ann,tea,x\n1,ann,rum,y\n4,bob,rum,z\n"),
        ("a.inter", "user_id:token\titem_id:token\trating:float\nann\ttea\t5\nann\trum\t1\nbob\trum\t4\n"),
    ],
)
def test_a_table_is_read_with_or_without_a_head(write, name, text):
    ratings = open_ratings(write(text, name))
    assert (ratings.users, ratings.items) == (["ann", "bob"], ["tea", "rum"])
    assert (ratings.user.tolist(), ratings.item.tolist(), ratings.rating.tolist()) == ([0, 0, 1], [0, 1, 1], [5, 1, 4])
    assert ratings.time is None
    assert ratings.sparsity == 0.25


def test_a_fourth_column_is_the_time(write):
    assert read_ratings(write("ann,tea,5,9.5\nann,rum,1,3\n")).time.tolist() == [9.5, 3]
    assert read_ratings(write("timestamp,user,item,score\n9.5,ann,tea,5\n3,ann,rum,1\n")).time.tolist() == [9.5, 3]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ann,tea,5\nann,rum,6\n", r"line 2: a rating of 6, and ratings go from 1 to 5; mend or remove the row"),
        ("ann,tea,5\nann,rum,0\n", r"line 2: a rating of 0"),
        ("ann,tea,5\nann,rum,nan\n", r"line 2: the rating nan is no finite number"),
        ("ann,tea,5\nann,rum,inf\n", r"line 2: the rating inf is no finite number"),
        ("ann,tea,5\nann,rum,good\n", r"line 2: the rating good is no finite number"),
        ("ann,tea,5\n\nann,tea,5\n", r"line 3: ann has rated tea in line 1 already; keep one of them"),
        ("ann,tea,5\nbob,,\n", r"line 2: no item; a row is user, item, rating\[, time\]"),
        ("ann,tea,5\nbob,rum\n", r"line 2: no rating; a row is user, item, rating"),
        ("ann,tea,5\n,rum,3\n", r"line 2: no user"),
        ("ann,tea,5,1\nbob,rum,3\n", r"line 2: no time"),
        ("ann,tea,5,1\nbob,rum,3,monday\n", r"line 2: the time monday is no finite number"),
        ("user,thing,rating\nann,tea,5\n", r"line 1: the head names no item; it has user, thing, rating"),
        ("user,item,rating\nann,tea,1e300\n", r"line 2: the rating 1e300 is too large; mend or remove the row"),
        ("ann,tea,5\nann,rum,-3e38\n", r"line 2: the rating -3e38 is too large"),
        ("user,user,item,rating\nann,bob,tea,5\n", r"line 1: two columns for the user; keep one"),
        ("user,item,movie_id,rating\nann,tea,7,5\n", r"line 1: two columns for the item; keep one"),
        ("", r"no ratings; a row is user, item, rating"),
        ("user,item,rating\n", r"no ratings"),
    ],
)
def test_what_is_wrong_with_a_row_is_told_in_a_line(write, text, complaint):
    with pytest.raises(UserError, match=complaint) as error:
        read_ratings(write(text), scale=(1, 5))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("nowhere.csv", "no such file"),
        ("ratings.xls", r"ratings are read from .csv and .tsv; this is .xls"),
        ("builtin:movielense", "did you mean builtin:movielens"),
    ],
)
def test_a_source_that_is_none_is_told(source, complaint):
    with pytest.raises(UserError, match=complaint):
        open_ratings(source)


def test_no_text_at_all_is_told(write, tmp_path):
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe,\x00")
    with pytest.raises(UserError, match="no table of ratings"):
        read_ratings(tmp_path / "bytes.csv")


def test_other_ratings_have_another_digest(write):
    text = "ann,tea,5\nann,rum,1\nbob,rum,4\n"
    digests = {
        read_ratings(write(changed)).digest for changed in (text, text.replace("5", "4"), text.replace("b", "c"))
    }
    assert len(digests) == 3
    assert read_ratings(write(text)).digest in digests


@needs_recbole
def test_movielens_is_what_it_is_known_to_be():
    ratings = movielens()
    assert (len(ratings), len(ratings.users), len(ratings.items)) == (100_000, 943, 1682)
    assert round(ratings.sparsity, 5) == 0.93695
    assert sorted(set(ratings.rating.tolist())) == [1, 2, 3, 4, 5]
    assert ratings.time is not None
    assert len(set(ratings.items)) == 1682
    counts = np.bincount(ratings.item)
    assert (ratings.items[counts.argmax()], counts.max()) == ("Star Wars (1977)", 583)
    assert ratings.seen.counts.min() == 20  # GroupLens kept those with twenty or more


# -- splits -----------------------------------------------------------------------------------------------------------


def pairs(ratings):
    return set(zip(ratings.user.tolist(), ratings.item.tolist(), strict=True))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_random_split_parts_the_ratings_and_leaves_every_user_some(share):
    ratings = drawn()
    learned, held = random_split(ratings, share)
    assert pairs(learned) | pairs(held) == pairs(ratings)
    assert not pairs(learned) & pairs(held)
    assert set(learned.user) == set(range(7))
    assert len(held) == min(round(share * len(ratings)), len(ratings) - 7)
    assert pairs(random_split(ratings, share)[1]) == pairs(held)
    if 0 < share < 1:
        assert pairs(random_split(ratings, share, seed=1)[1]) != pairs(held)


def test_the_last_rating_of_each_user_is_held_out():
    ratings = drawn()
    learned, held = last_held_out(ratings)
    assert pairs(learned) | pairs(held) == pairs(ratings)
    for user in range(7):
        mine = ratings.user == user
        if mine.sum() == 1:
            assert user not in held.user
            continue
        assert held.time[held.user == user] == ratings.time[mine].max()
        assert learned.time[learned.user == user].max() < ratings.time[mine].max()


def test_without_times_or_at_the_same_time_the_last_row_is_held_out():
    for time in (None, np.zeros(4)):
        ratings = Ratings(["a", "b"], ["x", "y", "z"], np.array([0, 0, 0, 1]), np.array([2, 0, 1, 1]), np.ones(4), time)
        assert pairs(last_held_out(ratings)[1]) == {(0, 1)}  # b has one rating: it is learned from


# -- what was seen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_places_among_the_unseen_are_all_of_them_in_order(seed):
    ratings = drawn(seed=seed, share=0.3 + 0.1 * seed)
    seen = Seen(ratings.user, ratings.item, 7, 11)
    mask = np.zeros((7, 11), dtype=bool)
    mask[ratings.user, ratings.item] = True
    assert (seen.mask(np.arange(7)) == mask).all()
    assert (seen.mask(np.array([3, 3, 0])) == mask[[3, 3, 0]]).all()
    for user in range(7):
        unseen = np.flatnonzero(~mask[user])
        assert seen.unseen(np.full(len(unseen), user), np.arange(len(unseen))).tolist() == unseen.tolist()


def test_draws_are_unseen_and_as_likely_and_the_generator_decides():
    ratings = drawn()
    users = np.repeat(np.arange(7), 4000)
    items = ratings.seen.draw(users, 2, np.random.default_rng(3))
    assert not ratings.seen.mask(users)[np.arange(len(users))[:, None], items].any()
    for user in range(7):
        counts = np.bincount(items[users == user].ravel(), minlength=11)
        free = ~ratings.seen.mask(np.array([user]))[0]
        expected = 8000 / free.sum()
        assert ((counts[free] - expected) ** 2 / expected).sum() < 40  # χ² of at most 10 degrees: 40 is p = 2e-5
    again = ratings.seen.draw(users, 2, np.random.default_rng(3))
    assert (again == items).all()


# -- beside weights ---------------------------------------------------------------------------------------------------


def test_what_was_learned_comes_back(tmp_path):
    ratings = drawn()
    write_learned(tmp_path, ratings)
    again = read_learned(tmp_path)
    assert (again.users, again.items, pairs(again)) == (ratings.users, ratings.items, pairs(ratings))
    assert (again.rating == ratings.rating).all()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("names.json", b"{}"),
        ("names.json", b'{"users": [1], "items": []}'),
        ("names.json", b'{"users": ["a"], "items": ["b"]}'),
        ("learned.npz", b"PK"),
    ],
)
def test_damage_is_named(tmp_path, file, content):
    write_learned(tmp_path, drawn())
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError, match=r"damaged names.json or learned.npz \(.*\); train the model again"):
        read_learned(tmp_path)


def test_a_label_that_is_none_is_answered_with_near_ones():
    labels = [f"film {n}" for n in range(100)]
    assert by_label(labels, "film 7", "item") == 7
    with pytest.raises(UserError, match="there is no item film 7x; among those there are: film 7"):
        by_label(labels, "film 7x", "item")
