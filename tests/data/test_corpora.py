"""Texts as sentences of words: what is kept, what is left out, what is told in one line."""

import bz2

import numpy as np
import pytest

from horosphere import foreign
from horosphere.data import corpora
from horosphere.data.corpora import articles, corpus_of, plain, read_analogies, read_corpus, read_pairs, sentences
from horosphere.errors import UserError


def spelled(corpus):
    """Its sentences, in words."""
    parts = np.split(corpus.tokens, corpus.starts[1:])
    return [[corpus.words[number] for number in part] for part in parts]


def test_the_frequent_come_first_and_equals_by_the_alphabet():
    corpus = corpus_of([["b", "c", "a", "b"], ["a", "d"]])
    assert corpus.words == ["a", "b", "c", "d"]
    assert corpus.counts.tolist() == [2, 2, 1, 1]
    assert spelled(corpus) == [["b", "c", "a", "b"], ["a", "d"]]


def test_rare_words_leave_gaps_that_close():
    corpus = corpus_of([["x"], ["a", "y", "a"], [], ["z", "z", "b"], ["b", "a"]], least=2)
    assert spelled(corpus) == [["a", "a"], ["z", "z", "b"], ["b", "a"]]
    assert len(corpus) == 7
    assert corpus.read == 9
    assert corpus.tokens.dtype == np.int32


def test_a_line_is_a_sentence(tmp_path):
    (tmp_path / "a.txt").write_text("The cat,\n\n9 lives!\fthe END")
    assert list(sentences(str(tmp_path))) == [["the", "cat"], ["lives"], ["the", "end"]]


@pytest.mark.parametrize("text", ["a few words", "again again again again again"])
def test_too_few_words_are_told_in_one_line(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(UserError, match=r"a.txt: \d of its \d words stand there 5 times or more; .*least=$"):
        read_corpus(str(tmp_path / "a.txt"))


def test_an_unknown_name_has_a_near_miss():
    with pytest.raises(UserError, match="builtin:enwiki"):
        sentences("builtin:enwik")
    with pytest.raises(UserError, match="builtin:wordsim353"):
        read_pairs("builtin:wordsim")


def test_a_text_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(corpora, "MOST_WORDS", 3)
    with pytest.raises(UserError, match="more than 3 words"):
        corpus_of([["a"] * 4])


# -- Wikipedia --------------------------------------------------------------------------------------------------------

PAGE = """  <page>
    <title>Rose</title>
    <ns>{space}</ns>
    <text xml:space="preserve">A &lt;b&gt;rose&lt;/b&gt;
is a rose.</text>
  </page>
"""


def test_articles_are_pages_of_the_first_namespace():
    lines = (PAGE.format(space=0) + PAGE.format(space=4) + '<ns>0</ns>\n<text bytes="0" />\n').splitlines(keepends=True)
    assert list(articles(lines)) == ["A <b>rose</b>\nis a rose."]


def test_an_article_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(corpora, "LONGEST_ARTICLE", 10)
    with pytest.raises(foreign.Unreadable, match="more than 10"):
        list(articles(["<text>", "x" * 11]))


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("a{{x|{{y}}|z}}b", "ab"),
        ("a<!-- no\nno -->b<ref name=x>c</ref>d<ref name=y />e<br/>", "abde"),
        ("a{| class=x\n| cell {{t}}\n|}b", "ab"),
        ("[[File:a.jpg|thumb|a [[b|c]] d]]e[[Category:f]][[fr:Rose]]", "e"),
        ("[[a]] [[b|c]] [http://x.org d] https://y.org", "a c  d] "),
        ("a&nbsp;b", "a\xa0b"),
        ("{{" * 40 + "}}" * 40, "{{" * 20 + "}}" * 20),  # deeper than anybody writes: left as it is
    ],
)
def test_markup_becomes_prose(markup, prose):
    assert plain(markup) == prose


def test_wikipedia_is_that_of_gensim():
    """Its own counts: 106 articles, 452,944 words. Ours leave out captions of pictures."""
    pytest.importorskip("gensim")
    texts = list(sentences("builtin:enwiki"))
    assert len(texts) == 106
    assert sum(map(len, texts)) == 437_078
    assert len({word for text in texts for word in text}) == 32_240
    assert texts[0][:3] == ["anarchism", "is", "political"] or texts[0][0] == "anarchism"


def test_news_are_there():
    pytest.importorskip("gensim")
    texts = list(sentences("builtin:lee"))
    assert len(texts) == 300
    assert sum(map(len, texts)) == 60_302


def test_a_packed_file_is_bounded_and_broken_ones_are_named(tmp_path, monkeypatch):
    (tmp_path / "a.bz2").write_bytes(bz2.compress(b"x" * 10**6))
    assert len(foreign.read_bytes(tmp_path / "a.bz2")) == 10**6
    monkeypatch.setattr(foreign, "FREELY", 1000)
    with pytest.raises(foreign.Unreadable, match="100 times"):
        foreign.read_bytes(tmp_path / "a.bz2")
    (tmp_path / "b.bz2").write_bytes(bz2.compress(b"some text")[:-5])
    with pytest.raises(foreign.Unreadable, match="broken bzip2"):
        foreign.read_bytes(tmp_path / "b.bz2")
    (tmp_path / "c.bz2").write_bytes(b"no bzip2")
    with pytest.raises(foreign.Unreadable, match="cannot be read"):
        foreign.read_bytes(tmp_path / "c.bz2")


# -- judgements -------------------------------------------------------------------------------------------------------


def test_judgements_of_gensim():
    pytest.importorskip("gensim")
    assert len(read_pairs("builtin:wordsim353").scores) == 353
    assert len(read_pairs("builtin:simlex999").scores) == 999
    analogies = read_analogies()
    assert len(analogies.questions) == len(analogies.kinds) == 19_544
    assert len(set(analogies.kinds)) == 14


@pytest.mark.parametrize("line", ["cat\tdog", "cat dog much", "cat dog nan", "cat dog 1"])
def test_pairs_that_are_none(tmp_path, line):
    (tmp_path / "a.tsv").write_text(line)
    with pytest.raises(UserError, match="no pairs of words"):
        read_pairs(str(tmp_path / "a.tsv"))


def test_pairs_in_any_separation(tmp_path):
    (tmp_path / "a.csv").write_text("# head\nCat,dog,1\nsun\tmoon\t2.5\nx y 3 more\n")
    assert read_pairs(str(tmp_path / "a.csv")).first == ["cat", "sun", "x"]


def test_questions_that_are_none(tmp_path):
    (tmp_path / "q.txt").write_text(": kind\na b c\n")
    with pytest.raises(UserError, match="line 2 has 3 words, not 4"):
        read_analogies(str(tmp_path / "q.txt"))
