"""Pictures from the command line: train, go on, explain; and every mistake in one line."""

import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("torchvision", reason="pictures need torchvision")
pytest.importorskip("matplotlib", reason="pictures of pictures need matplotlib")

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from horosphere.cli import main
from horosphere.data.augment import normalise
from horosphere.data.images import read_picture
from horosphere.runs import Run
from tests.cli.command_line import cells, runner
from tests.data.pictures import write_npz
from tests.tasks.tiny import PICTURES

COLOURS = ("hcformer-nano-32", "data=colours.npz", *PICTURES, "--quiet", "--device", "cpu")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with pictures, and a run that is done."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_npz("colours.npz", coarse_of_fine=np.array([0, 0, 1, 1]))
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)).save("noise.png")
        assert main(["train", *COLOURS, "--out", "run"]) == 0
        yield folder


@pytest.fixture
def run(home, capsys):
    return runner(capsys)


def test_a_run_says_how_well_it_knows_the_classes_and_their_parents(run):
    code, out, _ = run("train", *COLOURS, "--resume", "--out", "run")
    assert code == 0
    assert [line.split("  ")[0] for line in out.splitlines()][2:8] == [
        "top-1",
        "top-5",
        "coarse top-1",
        "tree error",
        "to the parent",
        "to a sibling",
    ]


def test_how_a_run_clusters_is_measured_stage_by_stage(run):
    code, out, _ = run("measure", "clusters", "run")
    assert code == 0
    head, *rows = out.splitlines()
    assert head == "mean of         stage 1  stage 2  stage 3  stage 4"
    assert [row[: row.index("  ")] for row in rows] == [
        *("patch centres", "patch passed", "patch scale", "mixer scale", "mlp scale"),
    ]
    read = Run.open("run").readings()[-1]
    assert rows[0].split()[2:] == [f"{read[f'patch_centres_{stage}']:.4g}" for stage in (1, 2, 3, 4)]


def test_a_picture_is_explained(run):
    code, out, _ = run("explain", "noise.png", "--model", "run", "--out", "seen")
    assert code == 0
    trained = Run.open("run").load()
    seen, _ = read_picture("noise.png", trained.augmentation.still_box, trained.size, trained.size)
    with torch.no_grad():
        shares = trained.network(normalise(seen[None]))[0].softmax(-1)
    best = int(shares.argmax())
    likeliest = re.split(r"\s{2,}", out.splitlines()[0].strip())
    assert likeliest == [trained.classes[best], f"{100 * shares[best]:.1f} %"]
    page = Path("seen/report.html").read_text(encoding="utf-8")
    assert all(cell in page for cell in likeliest)
    assert page.count("<svg") + page.count("data:image/png") >= 2
    picture = plt.imread("seen/clusters.png")
    assert min(picture.shape[:2]) > 100
    assert len(np.unique(picture)) > 50


def test_what_a_network_does_not_see_of_a_picture_is_said(run):
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save("wide.png")
    code, out, _ = run("explain", "wide.png", "--model", "run", "--out", "wide")
    assert code == 0
    assert cells(out)["cropped"] == "the network sees the middle 40 x 40 of 60 x 40 pixels"
    assert cells(out)["even"].endswith("nothing is clustered")  # all pixels are alike
    Image.open("wide.png").resize((40, 40)).save("square.png")
    assert "cropped" not in cells(run("explain", "square.png", "--model", "run", "--out", "square")[1])


def test_a_run_is_judged_again_on_what_was_held_out_or_on_other_pictures(run):
    code, out, _ = run("eval", "run", "--device", "cpu")
    scores = Run.open("run").evaluations()[-1]
    assert code == 0
    assert cells(out)["top-1"] == f"{scores['top1']:.4f}"
    inverted = 255 - np.load("colours.npz")["test_images"]
    write_npz("others.npz", test_images=inverted)
    code, out, _ = run("eval", "run", "--data", "others.npz", "--device", "cpu")
    assert code == 0
    assert cells(out)["top-1"] != f"{scores['top1']:.4f}"
    Path("others.npz").unlink()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("train", "hcformer-nano-32"), "data must be given"),
        (("train", "hcformer-nano-32", "data=nowhere"), "no such file or folder"),
        (("train", "hcformer-nano-32", "data=colours.npz", "window_geometry=round"), "choose from euclidean, lorentz"),
        (("train", "himapper-32", "data=colours.npz", "model=resnet19"), "did you mean resnet18"),
        (("train", "himapper-32", "data=colours.npz", "start=nowhere"), "no folder of a run"),
        (("train", "semantic-fpn", "data=nowhere"), "nowhere"),
        (("compare", "semantic-fpn", "data=nowhere"), "semantic-fpn exists in euclidean space only"),
        (("eval", "run", "--limit", "3"), "--limit is for language models; run is a run of the task pictures"),
        (("eval", "run", "--task", "blimp"), "--task is for language models; run is a run of the task pictures"),
        (("generate", "run", "a"), "run: a run of the task pictures; give one of language"),
        (
            ("compare", "hcformer-nano-32", "data=colours.npz", "patch_geometry=lorentz"),
            "what the entrants of the comparison differ in",
        ),
        (("explain", "colours.npz", "--model", "run"), "no readable picture"),
        (("explain", "missing.png", "--model", "run"), "no such picture"),
        (("explain", "noise.png", "--model", "hcformer-nano"), "pass --random-weights"),
        (("explain", "noise.png", "--model", "nowhere"), "nowhere"),
    ],
)
def test_mistakes_take_one_line_and_write_nothing(run, words, complaint):
    before = sorted(Path().rglob("*"))
    trains = ("--out", "new", "--quiet", "--device", "cpu")
    out = {"eval": (), "generate": (), "explain": ("--out", "new")}.get(words[0], trains)
    code, said, err = run(*words, *out)
    assert (code, said) == (2, "")
    assert err.startswith("horosphere: ")
    assert err.count("\n") == 1
    assert complaint in err
    assert sorted(Path().rglob("*")) == before
