"""What cannot be trained, on the command line: one line, exit code 2, nothing written."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("_beside_a_tree")
FILES = {
    "high.csv": "ann,tea,9\nann,rum,3\nbob,tea,4\nbob,rum,1\n",
    "nan.csv": "ann,tea,nan\nann,rum,3\n",
    "empty.txt": "",
    "short.txt": "a b",
    "labels.tsv": "".join(f"yes\tgood {i}\nno\tbad {i}\n" for i in range(30)),
    "pairs.tsv": "".join(f"a {i}\tb {i}\n" for i in range(30)),
    "three.en": "a b\nc d\ne f\n",
    "two.fr": "x\ny\n",
}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("train rbm geometry=lorentz", "exists in flat space only; leave geometry=lorentz out"),
        ("train lenet geometry=sphere", "geometry=sphere: choose from euclidean, lorentz, poincare"),
        ("train transformer geometry=poincare", "geometry=poincare: choose from euclidean, lorentz"),
        ("compare rbm", "exists in euclidean space only"),
        ("compare mf --geometries lorentz,foo", "geometries=foo: Matrix factorisation does not exist in it"),
        ("train mf data=high.csv scale=1,5", "high.csv line 1: a rating of 9, and ratings go from 1 to 5"),
        ("train mf data=high.csv scale=5,1", "scale=5,1: give the least rating first, then the highest"),
        ("train mf data=high.csv scale=3,3", "scale=3,3: give the least rating first, then the highest"),
        ("train mf data=nan.csv", "nan.csv line 1: the rating nan is no finite number"),
        ("train skip-gram data=empty.txt", "empty.txt holds no text"),
        ("train skip-gram data=short.txt least=5", "give a longer text, or a smaller least="),
        ("train textcnn data=labels.tsv least=1000", "an empty vocabulary: no token occurs 1000 times"),
        ("train seq2seq data=pairs.tsv least=1000", "an empty vocabulary: no token occurs 1000 times"),
        ("train seq2seq data=three.en,two.fr", "three.en has 3 lines, two.fr 2: line i of one must be"),
        ("train seq2seq-attention data=two.fr,three.en", "two.fr has 2 lines, three.en 3"),
    ],
)
def test_it_is_refused(refused, words, complaint):
    for name, content in FILES.items():
        Path(name).write_text(content)
    assert complaint in refused(*words.split())
