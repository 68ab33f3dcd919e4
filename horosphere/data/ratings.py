"""Who rated what, how high, and when: from a table, or MovieLens' ratings out of an installed package."""

from __future__ import annotations

import difflib
import io
import json
import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from horosphere.data.builtin import BUILTIN
from horosphere.errors import UserError, choices, one_line
from horosphere.extras import package_folder
from horosphere.files import digest, write_whole
from horosphere.foreign import LARGE, Unreadable, printable, read_json, read_npz, read_table

DELIMITER = {".csv": ",", ".tsv": "\t"}
# what a head may call the columns; what comes behind a colon, a type, is left out
COLUMNS = {
    "user": ("user", "user_id", "userid"),
    "item": ("item", "item_id", "itemid", "movie", "movie_id", "movieid"),
    "rating": ("rating", "score", "stars"),
    "time": ("time", "timestamp"),
}
MOVIELENS = Path("dataset_example", "ml-100k")  # below the folder of recbole
STARS = (1.0, 5.0)  # of MovieLens
LARGEST = 1e15  # of a rating: models take squares, in 32 bits
NAMES, LEARNED = "names.json", "learned.npz"


@dataclass(frozen=True, eq=False, repr=False)
class Ratings:
    """N ratings: user and item by number, with their labels.

    >>> ratings = Ratings(["ann", "bob"], ["tea", "rum"], np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([5, 1, 4]))
    >>> ratings, ratings.sparsity
    (Ratings(3 of 2 users and 2 items), 0.25)
    """

    users: list[str]
    items: list[str]
    user: np.ndarray  # (N,) int64
    item: np.ndarray  # (N,) int64
    rating: np.ndarray  # (N,) float32
    time: np.ndarray | None = None  # (N,) float64

    def __post_init__(self) -> None:
        for name, kind in (("user", np.int64), ("item", np.int64), ("rating", np.float32)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=kind))

    def __len__(self) -> int:
        return len(self.user)

    def __repr__(self) -> str:
        return f"Ratings({len(self):,} of {len(self.users):,} users and {len(self.items):,} items)"

    @property
    def sparsity(self) -> float:
        """The share of the pairs of a user and an item that have no rating."""
        return 1 - len(self) / (len(self.users) * len(self.items))

    @property
    def digest(self) -> str:
        parts = (self.user, self.item, self.rating, *(() if self.time is None else (self.time,)))
        return digest("\n".join(self.users), "\n".join(self.items), *(part.tobytes() for part in parts))

    def part(self, rows: np.ndarray) -> Ratings:
        """These ratings, of the same users and items.

        >>> ratings = Ratings(["ann", "bob"], ["tea"], np.array([0, 1]), np.array([0, 0]), np.array([5, 1]))
        >>> ratings.part(np.array([1]))
        Ratings(1 of 2 users and 1 items)
        """
        time = None if self.time is None else self.time[rows]
        return replace(self, user=self.user[rows], item=self.item[rows], rating=self.rating[rows], time=time)

    @property
    def scale(self) -> tuple[float, float]:
        """The least and the highest of them."""
        return float(self.rating.min()), float(self.rating.max())

    @property
    def swapped(self) -> Ratings:
        """Users for items, and items for users."""
        return Ratings(self.items, self.users, self.item, self.user, self.rating, self.time)

    @cached_property
    def seen(self) -> Seen:
        return Seen(self.user, self.item, len(self.users), len(self.items))


class Seen:
    """Which items each user has rated, as a compressed table.

    >>> seen = Seen(np.array([0, 1, 1]), np.array([2, 0, 1]), users=2, items=4)
    >>> seen.mask(np.array([1])).tolist()
    [[True, True, False, False]]
    """

    def __init__(self, user: np.ndarray, item: np.ndarray, users: int, items: int):
        order = np.lexsort((item, user))
        self.items, self.item = items, item[order]
        self.counts = np.bincount(user, minlength=users)
        self.starts = np.cumsum(self.counts) - self.counts
        # item s, the k-th that its user has rated, comes after s - k others: sorted within a user, and users apart
        place = np.arange(len(item)) - self.starts[user[order]]
        self._before = user[order] * (items + 1) + self.item - place

    def unseen(self, user: np.ndarray, place: np.ndarray) -> np.ndarray:
        """The item at this place among those that a user has not rated, counted from 0.   (...), (...) -> (...)

        So a place drawn once is an item never rated: nothing is drawn again.

        >>> seen = Seen(np.array([0, 0]), np.array([0, 2]), users=1, items=4)
        >>> seen.unseen(np.array([0, 0]), np.array([0, 1])).tolist()
        [1, 3]
        """
        skipped = np.searchsorted(self._before, user * (self.items + 1) + place, side="right") - self.starts[user]
        found: np.ndarray = place + skipped
        return found

    def draw(self, user: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
        """Items that the users have not rated, all of them as likely.   (B,) -> (B, count)

        >>> seen = Seen(np.array([0, 0]), np.array([0, 2]), users=1, items=4)
        >>> set(seen.draw(np.array([0] * 99), 1, np.random.default_rng(0)).flatten().tolist()) == {1, 3}
        True
        """
        users = np.broadcast_to(user[:, None], (len(user), count))
        return self.unseen(users, random.integers(self.items - self.counts[users]))

    def mask(self, users: np.ndarray) -> np.ndarray:
        """(B,) -> (B, items) bool"""
        mask = np.zeros((len(users), self.items), dtype=bool)
        row, place = _places(self.starts[users], self.counts[users])
        mask[row, self.item[place]] = True
        return mask


class ItemRows:
    """The ratings of each item, as rows over all users.

    >>> ratings = Ratings(["ann", "bob"], ["tea", "rum"], np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([5, 1, 4]))
    >>> rows, there = ItemRows(ratings)(np.array([1, 0]))
    >>> rows.tolist(), there.tolist()
    ([[1.0, 4.0], [5.0, 0.0]], [[True, True], [True, False]])
    """

    def __init__(self, ratings: Ratings):
        order = np.argsort(ratings.item, kind="stable")
        self.user, self.rating, self.users = ratings.user[order], ratings.rating[order], len(ratings.users)
        self.counts = np.bincount(ratings.item, minlength=len(ratings.items))
        self.starts = np.cumsum(self.counts) - self.counts

    def __call__(self, items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ratings, 0 where there is none, and where there is one.   (B,) -> (B, users) float32, (B, users) bool"""
        rows = np.zeros((len(items), self.users), dtype=np.float32)
        there = np.zeros(rows.shape, dtype=bool)
        row, place = _places(self.starts[items], self.counts[items])
        rows[row, self.user[place]] = self.rating[place]
        there[row, self.user[place]] = True
        return rows, there


def _places(starts: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of pieces of a compressed table: the piece of each entry, and its place in the table.   (B,), (B,) -> 2 x (P,)"""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, starts[row] + np.arange(len(row)) - (np.cumsum(counts) - counts)[row]


# -- from files -------------------------------------------------------------------------------------------------------


def open_ratings(source: str, scale: tuple[float, float] | None = None) -> Ratings:
    """builtin:movielens, or a .csv or .tsv file (also with .gz) of rows user, item, rating[, time].

    scale: the least and the highest rating there may be.
    """
    if not source.startswith(BUILTIN):
        return read_ratings(source, scale)
    known = {f"{BUILTIN}movielens": movielens}
    if source not in known:
        raise UserError(f"{source}: no such ratings come with a package; {choices(source, known)}")
    return known[source]()


def movielens() -> Ratings:
    """ml-100k (GroupLens): 100,000 ratings of 1,682 films by 943 people, 1 to 5 stars, with times.

    The files lie in the package recbole, which is not imported. Films are called by title and year; of a title that
    stands for two, the later one has its number too.
    """
    folder = package_folder("recbole") / MOVIELENS
    ratings = read_ratings(folder / "ml-100k.inter", STARS)
    titles: dict[str, str] = {}
    for _, (number, title, year, *_) in _cells(folder / "ml-100k.item", "\t")[1:]:
        label = printable(f"{title} ({year})")
        titles[number] = label if label not in titles.values() else f"{label}, {number}"
    return replace(ratings, items=[titles[number] for number in ratings.items])


def read_ratings(path: str | Path, scale: tuple[float, float] | None = None) -> Ratings:
    """The rows of a table: user, item, rating, and a time where there is one. A head may name the columns.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "mine.csv").write_text("user,item,rating\\nann,tea,5\\nann,rum,1\\nbob,rum,4\\n")
    ...     read_ratings(f"{folder}/mine.csv", scale=(1, 5))
    Ratings(3 of 2 users and 2 items)
    """
    path = Path(path)
    kind = Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()
    if kind not in (*DELIMITER, ".inter"):
        raise UserError(f"{path}: ratings are read from .csv and .tsv; this is {kind or 'a name without an extension'}")
    rows = _cells(path, DELIMITER.get(kind, "\t"))
    places = _columns(path, rows)
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    taken: list[tuple[int, int, float, float]] = []
    for line, cells in rows:
        user, item, rating, time = _row(path, line, cells, places)
        if scale is not None and not scale[0] <= rating <= scale[1]:
            goes = f"ratings go from {scale[0]:g} to {scale[1]:g}"
            raise UserError(f"{path} line {line}: a rating of {rating:g}, and {goes}; mend or remove the row")
        taken.append((users.setdefault(user, len(users)), items.setdefault(item, len(items)), rating, time))
    if not taken:
        raise UserError(f"{path}: no ratings; a row is user, item, rating[, time]")
    by_user, by_item, given, times = (np.array(column) for column in zip(*taken, strict=True))
    ratings = Ratings(list(users), list(items), by_user, by_item, given, times if "time" in places else None)
    _refuse_repeats(path, [line for line, _ in rows], ratings)
    return ratings


def _cells(path: Path, delimiter: str) -> list[tuple[int, list[str]]]:
    try:
        quoting = {} if delimiter == "," else {"quoting": 3}  # tabs need no quotes: a quote is a letter there
        return [(line, cells) for line, cells in read_table(path, delimiter=delimiter, **quoting) if any(cells)]
    except Unreadable as error:
        raise UserError(f"{path}: no table of ratings ({error}); give rows of user, item, rating[, time]") from error


def _columns(path: Path, rows: list[tuple[int, list[str]]]) -> dict[str, int]:
    """Where user, item, rating and, if there is one, time stand. A head is taken off the rows."""
    names = [cell.partition(":")[0].strip().lower().replace(" ", "_") for cell in rows[0][1]] if rows else []
    if not {name for known in COLUMNS.values() for name in known} & set(names):
        return dict(zip(COLUMNS, range(max(3, len(names))), strict=False))
    line, _ = rows.pop(0)
    for column, known in COLUMNS.items():
        if sum(name in known for name in names) > 1:
            raise UserError(f"{path} line {line}: two columns for the {column}; keep one")
    places = {column: names.index(name) for column, known in COLUMNS.items() for name in known if name in names}
    for column in ("user", "item", "rating"):
        if column not in places:
            have = ", ".join(map(one_line, names))
            raise UserError(f"{path} line {line}: the head names no {column}; it has {have}; name one so")
    return places


def _row(path: Path, line: int, cells: list[str], places: dict[str, int]) -> tuple[str, str, float, float]:
    found = {column: printable(cells[place]) if place < len(cells) else "" for column, place in places.items()}
    for column, text in found.items():
        if not text:
            raise UserError(f"{path} line {line}: no {column}; a row is user, item, rating[, time]")
    rating, time = (_number(path, line, column, found.get(column, "0")) for column in ("rating", "time"))
    return found["user"], found["item"], rating, time


def _number(path: Path, line: int, what: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        said = f"the {what} {one_line(text, 40)} is no finite number"
        raise UserError(f"{path} line {line}: {said}; mend or remove the row")
    if what == "rating" and abs(number) > LARGEST:
        raise UserError(f"{path} line {line}: the rating {one_line(text, 40)} is too large; mend or remove the row")
    return number


def _refuse_repeats(path: Path, lines: list[int], ratings: Ratings) -> None:
    _, first, inverse = np.unique(ratings.user * len(ratings.items) + ratings.item, True, True)
    again = np.flatnonzero(first[inverse] < np.arange(len(ratings)))
    if len(again):
        row = again[0]
        who = f"{one_line(ratings.users[ratings.user[row]])} has rated {one_line(ratings.items[ratings.item[row]])}"
        before = lines[first[inverse[row]]]
        raise UserError(f"{path} line {lines[row]}: {who} in line {before} already; keep one of them")


# -- splits -----------------------------------------------------------------------------------------------------------


def random_split(ratings: Ratings, share: float, seed: int = 0) -> tuple[Ratings, Ratings]:
    """To learn from, and a share held out at random: for RMSE. Of each user at least one rating is learned from.

    >>> ratings = Ratings(["ann"], ["tea", "rum"], np.array([0, 0]), np.array([0, 1]), np.array([5, 1]))
    >>> random_split(ratings, 0.9)
    (Ratings(1 of 1 users and 2 items), Ratings(1 of 1 users and 2 items))
    """
    order = np.random.default_rng(seed).permutation(len(ratings))
    first = np.unique(ratings.user[order], return_index=True)[1]
    free = np.setdiff1d(np.arange(len(order)), first)
    held = free[len(free) - min(len(free), round(share * len(ratings))) :]
    return ratings.part(np.sort(np.delete(order, held))), ratings.part(np.sort(order[held]))


def last_held_out(ratings: Ratings) -> tuple[Ratings, Ratings]:
    """To learn from, and the last rating of each user who has two or more: for ranking.

    Of ratings at the same time, and where there are no times, the last in the file.

    >>> user, item, rating, time = np.array([(0, 0, 5, 99), (0, 1, 1, 98)]).T
    >>> last_held_out(Ratings(["ann"], ["tea", "rum"], user, item, rating, time))[1].item
    array([0])
    """
    when = np.arange(len(ratings)) if ratings.time is None else ratings.time
    order = np.lexsort((np.arange(len(ratings)), when, ratings.user))
    ends = np.flatnonzero(np.diff(ratings.user[order], append=-1))
    held = order[ends[ratings.seen.counts[ratings.user[order[ends]]] > 1]]
    return ratings.part(np.setdiff1d(np.arange(len(ratings)), held)), ratings.part(held)


# -- beside weights ---------------------------------------------------------------------------------------------------


def write_learned(folder: Path, ratings: Ratings) -> None:
    """What a model was trained on, without times: its answers are for these users, and leave out what they know."""
    content = io.BytesIO()
    np.savez_compressed(content, user=ratings.user, item=ratings.item, rating=ratings.rating)
    names = {"users": ratings.users, "items": ratings.items}
    write_whole(folder / LEARNED, content.getvalue())
    write_whole(folder / NAMES, json.dumps(names, ensure_ascii=False, indent=0).encode())


def read_learned(folder: Path) -> Ratings:
    try:
        names, arrays = read_json(folder / NAMES, most=LARGE), read_npz(folder / LEARNED)
        users, items = names["users"], names["items"]
        if not all(isinstance(some, list) and all(isinstance(label, str) for label in some) for some in (users, items)):
            raise Unreadable(f"{NAMES} holds labels that are no text")
        learned = Ratings(users, items, arrays["user"], arrays["item"], arrays["rating"])
        sound = learned.user.shape == learned.item.shape == learned.rating.shape
        if not (sound and _numbers(learned.user, len(users)) and _numbers(learned.item, len(items))):
            raise Unreadable(f"{LEARNED} names users or items that {NAMES} does not")
        return learned
    except (LookupError, ValueError, TypeError) as error:
        raise UserError(f"{folder}: damaged {NAMES} or {LEARNED} ({one_line(error)}); train the model again") from error


def _numbers(these: np.ndarray, below: int) -> bool:
    return these.ndim == 1 and bool(((these >= 0) & (these < below)).all())


def by_label(labels: list[str], label: str | int, what: str) -> int:
    """The number of a user or an item. What a file calls 7 may be asked for as 7.

    >>> by_label(["tea", "rum"], "rum", "item"), by_label(["7", "8"], 8, "user")
    (1, 1)
    """
    label = str(label)
    if label not in labels:
        near = difflib.get_close_matches(label, labels) or labels[:3]
        raise UserError(f"there is no {what} {one_line(label)}; among those there are: {', '.join(near)}")
    return labels.index(label)
