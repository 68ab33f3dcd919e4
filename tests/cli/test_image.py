"""`horosphere image`: each verb where the truth is known, and the mistakes of its users in one line."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from horosphere.cli.image import VERBS, filter
from horosphere.data import scenes
from horosphere.foreign import open_picture
from tests.cli.command_line import cells
from tests.cli.graph_commands import everything
from tests.tasks.tiny import run_tiny, tiny, write_data

pytest.importorskip("kornia", reason="half of the verbs are kornia's")
pytest.importorskip("skimage", reason="the photographs are scikit-image's")
pytest.importorskip("matplotlib", reason="results are pictures")


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def image(run):
    """image(*words): what a command printed, which went well without a word of warning."""

    def image(*words):
        code, out, err = run("image", *words)
        assert (code, err) == (0, "")
        return out

    return image


def write(name, pixels):
    Path(name).parent.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(name)
    return name


def table(out):
    """Rows of numbers of the table with heads."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    return np.array([[float(cell) for cell in row] for row in rows if row[0].isdigit()])


def numbers(text):
    return [float(number) for number in re.findall(r"[-+]?\d+\.?\d*", text)]


def size_of(name):
    with open_picture(name) as picture:
        return picture.size


# -- each verb --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", filter.KINDS)
def test_every_filter_makes_a_picture_and_a_number_with_its_unit(kind, image):
    write("photo.png", scenes.scene(0, height=60, width=90)[0])
    out = image("filter", "photo.png", kind)
    assert re.search(r"\d( | %|\.\d+ )(%|dB|.*brightness)", out)
    times = 2 if kind == "cmyk" else 1
    assert size_of(f"photo-{kind}.png") == (90 * times, 60 * times)


def test_numbers_of_filters(image):
    ramp = np.repeat((2 * np.arange(100, dtype=np.uint8))[None, :, None], 80, 0).repeat(3, 2)
    write("ramp.png", ramp)
    slope = numbers(cells(image("filter", "ramp.png", "sobel"))["slope"])
    assert slope[1] == pytest.approx(2 / 255, abs=1e-4)
    out = cells(image("filter", "ramp.png", "high-pass", "size=5"))
    assert "0 is grey" in out["shown"]
    assert out["values"].endswith("in brightness")
    white = np.array(Image.open("ramp-high-pass.png"))
    assert abs(white[:, 10:-10].astype(int) - 128).max() <= 1
    out = cells(image("filter", "builtin:astronaut", "bayer"))
    assert numbers(out["PSNR"])[0] == pytest.approx(30.6, abs=0.2)
    assert numbers(cells(image("filter", "builtin:camera", "quantise", "levels=2"))["PSNR"])[0] < 15


def test_lines_are_printed_where_they_were_drawn(image):
    picture, truth = scenes.drawn_lines(0)
    write("photo.png", picture)
    found = table(image("lines", "photo.png", "--out", "lines.png"))
    for rho, theta in truth:
        assert (abs(found[:, 1:3] - (rho, np.degrees(theta))) < (2.5, 1.5)).all(1).sum() == 1
    assert size_of("lines.png") == (128, 128)
    assert len(table(image("lines", "photo.png", "--count", "1", "--out", "one.png"))) == 1


def test_circles_are_printed_where_they_were_drawn(image):
    picture, truth = scenes.drawn_circles(1)
    write("photo.png", picture)
    found = table(image("circles", "photo.png", "radii=10,45"))
    assert len(found) == len(truth)
    for circle in truth:
        assert (abs(found[:, 1:4] - circle).max(1) < 2).sum() == 1
    assert size_of("photo-circles.png") == (128, 128)


@pytest.mark.parametrize("method", ["harris", "gftt", "noble", "sift"])
def test_corners(method, image):
    board = np.kron(np.indices((6, 6)).sum(0) % 2, np.ones((20, 20))).astype(np.uint8) * 255
    write("photo.png", board)
    out = cells(image("corners", "photo.png", f"method={method}"))
    count, *_ = numbers(out["points"])
    assert count == 25 if method != "sift" else count > 10
    places = np.array(numbers(out["strongest"])).reshape(-1, 2)
    if method != "sift":
        assert (abs((places + 0.5) / 20 - ((places + 0.5) / 20).round()) < 0.06).all()
    assert ("radii" in out) == (method == "sift")


def test_the_map_between_two_photographs(image):
    scene = scenes.moved(0, kind="rotation", height=200, width=260, reach=25.0)
    write("left.png", scene.first)
    write("right.png", scene.second)
    out = image("match", "left.png", "right.png", "--out", "match.png")
    found = np.array([numbers(line.partition("=")[2]) for line in out.splitlines() if "' = " in line])
    corners = np.array([[0, 0, 1], [259, 0, 1], [0, 199, 1], [259, 199, 1]])
    assert abs(corners @ (found - scene.map[:2]).T).max() < 0.6
    points, _, matched, agree = numbers(cells(out)["SIFT"])
    assert points >= matched >= agree > 50
    assert numbers(cells(out)["residual"])[0] < 1
    assert size_of("match.png") == (528, 200)
    assert "unsure" not in out


@pytest.mark.parametrize("method", ["lucas-kanade", "horn-schunck"])
def test_a_known_shift_as_flow(method, image):
    scene = scenes.moved(2, kind="shift")
    write("a.png", scene.first)
    write("b.png", scene.second)
    np.save("truth.npy", scene.flow)
    out = image("flow", "a.png", "b.png", f"method={method}", "--truth", "truth.npy", "--save", "flow.npy")
    told = cells(out)
    assert numbers(told["endpoint error"])[0] < 0.3
    assert numbers(told["of no motion"])[0] == pytest.approx(np.hypot(*scene.map[:2, 2]), abs=0.01)
    assert numbers(told["median"]) == pytest.approx(scene.map[:2, 2], abs=0.1)
    flow = np.load("flow.npy")
    assert flow.shape == (2, 128, 128)
    assert abs(np.median(flow, (1, 2)) - scene.map[:2, 2]).max() < 0.1
    assert size_of("a-flow.png") == (2 * 136 + 120, 160)


def test_without_pictures_flow_is_that_of_the_stereo_pair(image):
    told = cells(image("flow", "longest=185"))
    assert numbers(told["of no motion"])[0] == pytest.approx(8.6, abs=0.1)
    assert numbers(told["endpoint error"])[0] < 1.2
    assert "longest=741" in told["shrunk"]


def test_a_moving_patch_is_tracked(image):
    frames, boxes = scenes.moving_patch(1, frames=12)
    for number, frame in enumerate(frames):
        write(f"frames/{number:02d}.png", frame)
    box = ",".join(f"{side:.2f}" for side in boxes[0])
    out = image("track", "frames/", f"box={box}", "--save", "boxes.csv", "--quiet")
    found = np.genfromtxt("boxes.csv", delimiter=",", skip_header=1)[:, 1:]
    assert found.shape == boxes.shape
    assert abs(found - boxes).max() < 0.3
    assert Path("boxes.csv").read_text().splitlines()[1].startswith("00.png,")
    assert size_of("frames-track.png") == (128, 128)
    assert "lost" not in out
    shown = [line for line in out.splitlines() if ".png " in line and "of 100" in line]
    assert 1 < len(shown) <= 10


def test_what_is_lost_is_told(image):
    frames, boxes = scenes.moving_patch(1, frames=6)
    frames[4:] = 128
    for number, frame in enumerate(frames):
        write(f"frames/{number:02d}.png", frame)
    box = ",".join(f"{side:.2f}" for side in boxes[0])
    out = image("track", "frames", f"box={box}", "--save", "boxes.csv")
    assert cells(out)["lost"].startswith("in 04.png: 0 of 100 points came back")
    assert len(Path("boxes.csv").read_text().splitlines()) == 1 + 4


def test_a_network_tracks_too(image, tmp_path):
    pytest.importorskip("torchvision", reason="its training needs it")
    frames, boxes = scenes.moving_patch(1, frames=4)
    for number, frame in enumerate(frames):
        write(f"frames/{number:02d}.png", frame)
    run_tiny(tiny("tracks", write_data("tracks", tmp_path)), "siam")
    box = ",".join(f"{side:.2f}" for side in boxes[0])
    out = image("track", "frames", f"box={box}", "method=siamfc", "--model", "siam")
    assert "4 of 128 x 128 pixels, siamfc" in out


def camera_points(count=12, noise=0.0, flat=False):
    random = np.random.default_rng(0)
    world = random.uniform(-1, 1, (count, 3)) * (1, 1, 0 if flat else 1)
    k = np.array([[800, 0, 320], [0, 780, 240], [0, 0, 1.0]])
    seen = (world + np.array([0.5, -0.25, 6])) @ k.T
    return np.concatenate([world, seen[:, :2] / seen[:, 2:] + random.normal(0, noise, (count, 2))], 1)


def write_points(points, head=""):
    Path("points.csv").write_text(head + "".join(",".join(f"{v:.9f}" for v in row) + "\n" for row in points))


@pytest.mark.parametrize("head", ["", "X,Y,Z,x,y\n"])
def test_a_camera_from_points(head, image):
    write_points(camera_points(), head)
    out = image("camera", "points.csv")
    rows = {line[0]: numbers(line[1:]) for line in out.splitlines() if line[:1] in "KR"}
    assert rows["K"] == pytest.approx([800, 0, 320], abs=1e-3)
    assert rows["R"] == pytest.approx([1, 0, 0], abs=1e-6)
    centre = numbers(next(line for line in out.splitlines() if line.startswith("centre")))
    assert centre == pytest.approx([-0.5, 0.25, -6], abs=1e-4)
    assert float(re.search(r"error +([\de.-]+) px", out)[1]) < 1e-5
    assert "behind" not in out


def test_a_camera_with_noise_says_how_far_it_is_off(image):
    write_points(camera_points(40, noise=0.5))
    assert 0.3 < float(re.search(r"error +([\de.-]+) px", image("camera", "points.csv"))[1]) < 1


def test_proposals_and_their_tree(image, run):
    picture = np.zeros((80, 120, 3), dtype=np.uint8)
    picture[20:50, 30:90] = (200, 30, 30)
    write("photo.png", picture)
    out = cells(image("proposals", "photo.png", "sigma=0", "--tree", "t.tsv", "--save", "boxes.csv"))
    boxes = np.genfromtxt("boxes.csv", delimiter=",", skip_header=1).tolist()
    assert [30, 20, 90, 50] in boxes
    assert [0, 0, 120, 80] in boxes
    assert size_of("photo-proposals.png") == (120, 80)
    assert out["next"] == "horosphere embed t.tsv"
    code, _, err = run("measure", "delta", "t.tsv", "--nodes", "4")  # it is read as a tree
    assert code == 0 or "Give at least 4" in err


def test_style(image):
    pytest.importorskip("torchvision", reason="what looks is its VGG-19")
    write("a.png", scenes.scene(0, height=40, width=60)[0])
    write("b.png", scenes.scene(1, height=40, width=40)[0])
    out = image("style", "a.png", "b.png", "--out", "mix.png", "steps=2", "backbone=resnet18", "--quiet")
    assert size_of("mix.png") == (60, 40)
    assert Path("runs/style-mix/run.json").is_file()
    assert "loss" in out


# -- photographs ------------------------------------------------------------------------------------------------------


def test_a_large_photograph_is_shrunk_and_told(image):
    write("photo.jpg", scenes.scene(0, height=150, width=300)[0])
    out = cells(image("corners", "photo.jpg", "longest=100"))
    assert out["photograph"] == "100 x 50 pixels"
    assert out["shrunk"].startswith("from 300 x 150; longest=300 takes all of them")
    assert size_of("photo-corners.png") == (100, 50)


def test_a_camera_that_was_held_upright_is_heeded(image):
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90° clockwise
    Image.fromarray(scenes.scene(0, height=40, width=60)[0]).save("photo.jpg", exif=exif)
    image("filter", "photo.jpg", "box")
    assert size_of("photo-box.png") == (40, 60)


def test_a_grey_photograph_stays_grey(image):
    write("photo.png", scenes.scene(0, height=40, width=60)[0][..., 0])
    image("filter", "photo.png", "gaussian", "--sigma", "1")
    assert Image.open("photo-gaussian.png").mode == "L"


def test_what_is_there_is_replaced_only_when_asked(image, refused):
    write("photo.png", scenes.scene(0, height=40, width=60)[0])
    image("filter", "photo.png", "box")
    assert "photo-box.png exists already" in refused("image", "filter", "photo.png", "box")
    before = Path("photo-box.png").read_bytes()
    image("filter", "photo.png", "box", "size=9", "--overwrite")
    assert Path("photo-box.png").read_bytes() != before


def test_nothing_is_left_behind_where_the_picture_cannot_be_made(refused, monkeypatch):
    write("photo.png", scenes.scene(0, height=40, width=60)[0])

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("horosphere.files.write_synced", full)
    assert "photo-box.png: cannot be written" in refused("image", "filter", "photo.png", "box")


# -- mistakes ---------------------------------------------------------------------------------------------------------

BAD = {
    "filter missing.png box": "missing.png: no such picture",
    "filter words.png box": "words.png: no readable picture",
    "filter torn.png box": "torn.png: no readable picture",
    "filter clear.png box": "clear.png: 4 channels (RGBA, transparent) instead of RGB or grey",
    "filter builtin:coin box": "did you mean builtin:coins",
    "filter photo.png gausian": "gausian: there is no such filter; did you mean gaussian",
    "filter photo.png gaussian sgima=2": "there is no setting sgima; did you mean sigma",
    "filter photo.png gaussian --sgima 2": "--sgima: there is no such option here; did you mean sigma",
    "filter photo.png gaussian sigma=-1": "sigma=-1: it must be positive",
    "filter photo.png gaussian sigma=1000": "too small for border=reflect",
    "filter photo.png box size=4": "size=4: a window needs a centre",
    "filter photo.png canny low=2 high=1": "low=2 high=1",
    "filter photo.png gaussian two": "two: what is this for?",
    "filter grey.png bayer": "grey.png: one channel, and bayer needs three",
    "filter grey.png cmyk": "grey.png: one channel, and cmyk needs three",
    "filter photo.png box --out soft.gif": "soft.gif: a picture's name ends in .png",
    "filter photo.png box --out nowhere/soft.png": "there is no folder nowhere",
    "filter photo.png box --out .": "a picture's name ends in",
    "filter photo.png": "the following arguments are required: kind",
    "lines flat.png": "flat.png: no line in it",
    "lines photo.png count=0": "count=0: it goes from 1",
    "circles flat.png": "flat.png: no circle of these radii",
    "circles photo.png radii=40,10": "radii=40,10: the least comes first",
    "circles photo.png radii=10": "radii=10: it should be 2 values",
    "circles photo.png radii=900,1000": "no such circle fits",
    "circles builtin:retina radii=1,400 longest=1400": "are too many; narrow the radii",
    "corners flat.png": "flat.png: no corner in it",
    "corners flat.png method=sift": "flat.png: no corner in it",
    "corners photo.png method=haris": "method=haris: choose from harris, gftt, noble, sift",
    "match photo.png flat.png": "0 points match, and an affine map needs 3",
    "match photo.png": "the following arguments are required: right",
    "flow photo.png": "1 picture: a flow leads from one to another",
    "flow photo.png small.png": "60 x 40 and 30 x 20 pixels; a flow needs pictures of one size",
    "flow photo.png photo.png --truth words.png": "words.png: no readable .npy",
    "flow photo.png photo.png --truth truth.npy": "(2, 3, 4), and a flow of these pictures is (2, 40, 60)",
    "flow photo.png photo.png method=farneback": "method=farneback: choose from lucas-kanade, horn-schunck",
    "flow photo.png photo.png --save photo.png": "photo.png exists already",
    "flow photo.png photo.png method=lucas-kanade window=4": "window",
    "track nowhere box=1,2,30,40": "nowhere: no such folder of frames",
    "track empty box=1,2,30,40": "empty: no frames in it",
    "track frames": "box must be given; add box=",
    "track frames box=1,2,3": "it should be 4 values",
    "track frames box=70,5,90,20": "lies outside the picture of 60 x 40 pixels",
    "track frames box=20,5,10,20": "has no area",
    "track frames box=2,2,5,5": "too small to follow",
    "track frames box=5,5,25,25 method=siamfc": "--model RUN and method=siamfc belong together",
    "track frames box=5,5,25,25 --model here": "--model RUN and method=siamfc belong together",
    "track mixed box=5,5,25,25": "30 x 20 pixels, and the first frame has 60 x 40",
    "camera missing.csv": "missing.csv: no such file",
    "camera few.csv": "few.csv: a camera needs 6 points or more, and there are 5",
    "camera flat.csv": "flat.csv: a camera from points: the world points lie in a plane",
    "camera short.csv": "short.csv line 2: 4 numbers instead of 5",
    "camera text.csv": 'text.csv line 2: "1,2,three,4,5" are not five numbers',
    "proposals photo.png scale=0": "scale=0: it must be positive",
    "proposals photo.png --tree nowhere/t.tsv": "there is no folder nowhere",
    "style photo.png missing.png": "missing.png: no such picture",
    "style photo.png photo.png steps=0": "how long to train",
    "style photo.png photo.png data=other.png": "the data are photo.png already",
    "paint photo.png": "invalid choice: 'paint'",
}


@pytest.fixture
def _mistakes(tmp_path):
    picture = scenes.scene(0, height=40, width=60)[0]
    write("photo.png", picture)
    write("small.png", picture[::2, ::2])
    write("grey.png", picture[..., 0])
    write("flat.png", np.full((40, 60, 3), 90, dtype=np.uint8))
    Image.fromarray(picture).convert("RGBA").save("clear.png")
    Path("words.png").write_text("no picture")
    Path("torn.png").write_bytes(Path("photo.png").read_bytes()[:1000])
    np.save("truth.npy", np.zeros((2, 3, 4)))
    Path("empty").mkdir()
    for number in range(2):
        write(f"frames/{number}.png", picture)
        write(f"mixed/{number}.png", picture[:: number + 1, :: number + 1])
    for name, points in {"few.csv": camera_points(5), "flat.csv": camera_points(9, flat=True)}.items():
        write_points(points)
        Path("points.csv").rename(name)
    Path("short.csv").write_text("X,Y,Z,x,y\n1,2,3,4\n")
    Path("text.csv").write_text("1,2,3,4,5\n1,2,three,4,5\n")


@pytest.mark.usefixtures("_mistakes")
@pytest.mark.parametrize("words", BAD)
def test_mistakes(words, refused):
    assert BAD[words] in refused("image", *words.split())


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_shows_an_example(verb, run):
    code, out, err = run("image", verb, "--help")
    assert (code, err) == (0, "")
    assert f"example: horosphere image {verb}" in out
    assert not everything()
