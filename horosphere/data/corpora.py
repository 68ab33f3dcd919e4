"""Texts as sentences of words, their vocabulary, and what people say about words: similarities and analogies.

A corpus is one array of numbers of words, four bytes each, and where its sentences begin. Windows of words do not reach
across the end of a sentence. In plain text a line is a sentence; of Wikipedia, as in gensim, an article.
"""

import html
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite
from pathlib import Path

import numpy as np

from horosphere.data.builtin import BUILTIN
from horosphere.data.text import documents
from horosphere.errors import UserError, choices, one_line
from horosphere.extras import package_folder
from horosphere.foreign import Unreadable, lines_of, opened, read_text

TEST_DATA = Path("test", "test_data")  # of gensim, whose tests come with it
ENWIKI = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
LEE = "lee_background.cor"
PAIRS = {"wordsim353": "wordsim353.tsv", "simlex999": "simlex999.txt"}
QUESTIONS = "questions-words.txt"
MOST_WORDS = 2**31 - 1  # of a corpus: eight gigabytes of numbers
LONGEST_ARTICLE = 16 << 20  # characters
LEAST_ARTICLE = 50  # words: less is a redirection

_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Corpus:
    """Words, the most frequent first, and the sentences as numbers of words.

    >>> corpus = corpus_of([["a", "rose", "is", "a", "rose"], ["a", "thorn"]], least=2)
    >>> corpus.words, corpus.counts, corpus.tokens, corpus.starts
    (['a', 'rose'], array([3, 2]), array([0, 1, 0, 1, 0], dtype=int32), array([0, 4]))
    """

    words: list[str]
    counts: np.ndarray  # (V,)
    tokens: np.ndarray  # (N,) int32: words that are no part of the vocabulary are left out
    starts: np.ndarray  # (S,): where sentences begin
    read: int  # words of the text, with those that were left out

    def __len__(self) -> int:
        return len(self.tokens)


def read_corpus(source: str, least: int = 5) -> Corpus:
    """The words that a source has at least so often, and its sentences; sources are those of `sentences`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "roses.txt").write_text("A rose is a rose\\nis a rose.")
    ...     read_corpus(folder, least=3).words
    ['a', 'rose']
    """
    corpus = corpus_of(sentences(source), least)
    if len(corpus.words) < 2:
        there = f"{len(corpus.words)} of its {corpus.read:,} words"
        raise UserError(f"{source}: {there} stand there {least} times or more; give a longer text, or a smaller least=")
    return corpus


def corpus_of(texts: Iterable[list[str]], least: int = 1) -> Corpus:
    """Sentences of words as numbers. Words of one count come in the order of the alphabet."""
    number: dict[str, int] = {}
    tokens, ends = array("i"), array("q")
    for sentence in texts:
        tokens.extend([number.setdefault(word, len(number)) for word in sentence])
        ends.append(len(tokens))
        if len(tokens) > MOST_WORDS:
            raise UserError(f"a text of more than {MOST_WORDS:,} words; give a part of it")
    numbers = np.frombuffer(tokens, dtype=np.int32) if tokens else np.empty(0, np.int32)
    counts = np.bincount(numbers, minlength=len(number))
    names = np.array(list(number), dtype=object)
    kept = np.array([i for i in np.lexsort((names, -counts)) if counts[i] >= least], dtype=np.int64)
    renumbered = np.full(len(number), -1, dtype=np.int32)
    renumbered[kept] = np.arange(len(kept))
    place = renumbered[numbers]
    before = np.concatenate([[0], np.cumsum(place >= 0)])  # words kept before each place
    starts = np.unique(before[np.concatenate([[0], np.asarray(ends, dtype=np.int64)[:-1]])])
    inside = starts[starts < before[-1]]  # a sentence may have lost all its words
    return Corpus([str(w) for w in names[kept]], counts[kept], place[place >= 0], inside, len(numbers))


def sentences(source: str) -> Iterator[list[str]]:
    """The words of a source, in small letters, sentence by sentence.

    source: "builtin:enwiki" (106 articles of Wikipedia) or "builtin:lee" (300 news), which come with gensim, or what
    `documents` reads: files and folders of text, "python", "hf:NAME".

    >>> list(sentences("builtin:lee"))[0][:5]
    ['hundreds', 'of', 'people', 'have', 'been']
    """
    if not source.startswith(BUILTIN):
        texts = (line for text in documents(source) for line in text.splitlines())
        return (words for line in texts if (words := words_of(line)))
    known = {f"{BUILTIN}enwiki": _enwiki, f"{BUILTIN}lee": _lee}
    if source not in known:
        raise UserError(f"{source}: no such text comes with a package; {choices(source, known)}")
    return known[source]()


def words_of(text: str) -> list[str]:
    """Runs of letters, in small letters.

    >>> words_of("The cat's 9 lives")
    ['the', 'cat', 's', 'lives']
    """
    return _WORD.findall(text.lower())


def are_bundled() -> bool:
    """Whether gensim, and the texts and judgements in it, is there."""
    return find_spec("gensim") is not None


def _bundled(name: str) -> Path:
    return package_folder("gensim") / TEST_DATA / name


def _lee() -> Iterator[list[str]]:
    return (words_of(line) for line in read_text(_bundled(LEE)).splitlines())


# -- Wikipedia --------------------------------------------------------------------------------------------------------


def _enwiki() -> Iterator[list[str]]:
    """Words of 2 to 15 letters, as gensim has them."""
    path = _bundled(ENWIKI)
    try:
        with opened(path) as file:
            for markup in articles(line.decode() for line in lines_of(file)):
                words = [word for word in words_of(plain(markup)) if 2 <= len(word) <= 15]
                if len(words) >= LEAST_ARTICLE:
                    yield words
    except Unreadable as error:
        raise UserError(f"{path}: {error}; install gensim again") from None


def articles(lines: Iterable[str]) -> Iterator[str]:
    """The markup of each article in an export of Wikipedia: pages of namespace 0, one at a time.

    It has one tag a line, so it needs no parser of XML, and no entity of it is obeyed.

    >>> list(articles(["<page>", "<ns>0</ns>", '<text xml:space="preserve">Rock &amp;', "roll</text>", "</page>"]))
    ['Rock &\\nroll']
    """
    held: list[str] = []
    size, inside, wanted = 0, False, True
    for line in lines:
        text = line.rstrip("\n")
        if not inside and (space := re.search(r"<ns>(-?\d+)</ns>", text)):
            wanted = space[1] == "0"
        if not inside and (begin := re.search(r"<text\b[^>]*(?<!/)>", text)):
            inside, held, size, text = True, [], 0, text[begin.end() :]
        if inside:
            body, end, _ = text.partition("</text>")
            held.append(body)
            size += len(body)
            if size > LONGEST_ARTICLE:
                raise Unreadable(f"an article of more than {LONGEST_ARTICLE:,} characters")
            inside = not end
            if end and wanted:
                yield html.unescape("\n".join(held))


_REMOVED = (  # comments, and elements whose content is no prose
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"<(ref|math|nowiki|gallery|timeline|source|pre|code)\b[^>]*(?<!/)>.*?</\1>", re.DOTALL | re.IGNORECASE),
    re.compile(r"<[^<>]{0,500}>"),
)
_INNERMOST = (re.compile(r"\{\{[^{}]*\}\}"), re.compile(r"\{\|(?:[^{}]|\{(?!\|))*?\|\}"))
_FILES = re.compile(r"\[\[(?:file|image|category):(?:[^\[\]]|\[\[[^\[\]]*\]\])*\]\]", re.IGNORECASE)
_LANGUAGES = re.compile(r"\[\[[a-z]{2,3}(?:-[a-z]+)*:[^\[\]]*\]\]")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_ELSEWHERE = re.compile(r"\[?\bhttps?://[^\s\]]*")
DEPTH = 20  # templates within templates


def plain(markup: str) -> str:
    """The prose in the markup of an article: no templates, tables, pictures, notes; of links what is shown.

    >>> plain("'''Anarchism''' is a [[political philosophy|philosophy]]{{cite|a {{b}}}}<ref>No</ref> of [[society]].")
    "'''Anarchism''' is a philosophy of society."
    """
    for pattern in _REMOVED:
        markup = pattern.sub("", markup)
    for pattern in _INNERMOST:
        for _ in range(DEPTH):
            markup, found = pattern.subn("", markup)
            if not found:
                break
    markup = _LANGUAGES.sub("", _FILES.sub("", markup))
    return html.unescape(
        _ELSEWHERE.sub("", _LINK.sub(r"\1", markup))
    )  # &nbsp; and the like, which are the markup's own


# -- what people say about words --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WordPairs:
    first: list[str]
    second: list[str]
    scores: list[float]


def read_pairs(source: str) -> WordPairs:
    """Pairs of words and how alike people find them: "builtin:wordsim353", "builtin:simlex999", or a file.

    A line has two words and a number, separated by a tab, a comma or blanks. Lines that begin with # are left out.

    >>> pairs = read_pairs("builtin:wordsim353")
    >>> len(pairs.scores), pairs.first[1], pairs.second[1], pairs.scores[1]
    (353, 'tiger', 'cat', 7.35)
    """
    known = {f"{BUILTIN}{name}": name for name in PAIRS}
    if source.startswith(BUILTIN) and source not in known:
        raise UserError(f"{source}: no such pairs come with a package; {choices(source, known)}")
    path = _bundled(PAIRS[known[source]]) if source in known else Path(source)
    try:
        lines = [line for line in read_text(path).splitlines() if line.strip() and not line.startswith("#")]
        rows = [re.split(r"\t|,|\s+", line.strip())[:3] for line in lines]
        pairs = WordPairs([a.lower() for a, *_ in rows], [b.lower() for _, b, _ in rows], [float(s) for *_, s in rows])
        if not all(map(isfinite, pairs.scores)) or len(set(pairs.scores)) < 2:
            raise ValueError("scores are finite numbers, and not all the same")
    except ValueError as error:
        raise UserError(f"{path}: no pairs of words ({one_line(error)}); a line is: word, word, number") from error
    return pairs


@dataclass(frozen=True)
class Analogies:
    """first is to second as third is to fourth: (Q, 4) words, and what kind of question each is."""

    questions: list[tuple[str, str, str, str]]
    kinds: list[str]


def read_analogies(source: str = f"{BUILTIN}questions-words") -> Analogies:
    """Questions of four words a line; a line that begins with a colon names the kind of those below it.

    >>> analogies = read_analogies()
    >>> len(analogies.questions), analogies.kinds[0], analogies.questions[0]
    (19544, 'capital-common-countries', ('athens', 'greece', 'baghdad', 'iraq'))
    """
    path = _bundled(QUESTIONS) if source == f"{BUILTIN}questions-words" else Path(source)
    questions: list[tuple[str, str, str, str]] = []
    kinds: list[str] = []
    kind = ""
    try:
        for number, line in enumerate(read_text(path).splitlines(), 1):
            words = line.lower().split()
            if words and words[0].startswith(":"):
                kind = line.strip(": ")
            elif words and len(words) != 4:
                raise Unreadable(f"line {number} has {len(words)} words, not 4")
            elif words:
                questions.append((words[0], words[1], words[2], words[3]))
                kinds.append(kind)
    except Unreadable as error:
        raise UserError(f"{path}: no analogies ({error}); a line is: athens greece oslo norway") from error
    return Analogies(questions, kinds)
