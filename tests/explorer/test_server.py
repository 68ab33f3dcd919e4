"""Who may ask the server, and for what; the exported page; the command."""

import gzip
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from base64 import b64decode
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from horosphere import explore
from horosphere.errors import UserError
from horosphere.explorer.server import Server
from horosphere.geometry import Lorentz
from tests.cli.command_line import runner
from tests.cli.graph_commands import SHORT, TREE

L = Lorentz()
EVIL = "</script><script>alert(1)</script>"


def explorer(**more):
    points = L.lift(torch.arange(12.0).reshape(6, 2) / 6)
    return explore(points, L, [EVIL, *"bcdef"], [(1, 0), (2, 0)], **more)


@contextmanager
def served(**how):
    with explorer().serve(**how) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def port():
    with served() as server:
        yield server.server_address[1]


def ask(port, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read(), reply.headers
    finally:
        connection.close()


def test_the_page_and_its_data(port):
    status, page, headers = ask(port, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'<div id="explorer">' in page
    meta = json.loads(ask(port, "/meta")[1])
    assert meta["atlases"][0]["count"] == 6
    assert json.loads(ask(port, "/arrays/0/labels")[1])[0] == EVIL
    assert len(ask(port, "/arrays/0/chart-0")[1]) == 96
    assert json.loads(ask(port, "/neighbours/0/5")[1])["numbers"] == [4, 3, 2, 1, 0]
    assert ask(port, "/meta", "HEAD")[:2] == (200, b"")


def test_nothing_of_the_web_can_be_asked_by_the_page(port):
    policy = ask(port, "/")[2]["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    headers = ask(port, "/meta")[2]
    assert "Access-Control-Allow-Origin" not in headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "localhost.evil.example", "0.0.0.0", "[::2]", "["])
def test_a_foreign_name_is_refused(port, name):
    status, line, _ = ask(port, "/meta", Host=name)
    assert (status, line.decode()) == (403, f"Host {name}: this server is for its own machine\n")


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1:80", "[::1]:9"])
def test_names_of_this_machine_are_answered(port, name):
    assert ask(port, "/meta", Host=name)[0] == 200


PATHS = [
    *("/../../../etc/passwd", "/arrays/0/../../../etc/passwd", "/arrays/0/%2e%2e%2fpasswd", "//etc/passwd"),
    *("/arrays/1/labels", "/arrays/-1/labels", "/arrays/x/labels", "/arrays/0/nothing", "/arrays/0", "/page.html"),
    *("/neighbours/0/6", "/neighbours/0/-1", "/neighbours/0/%D9%A3", "/neighbours/0/1e9", "/thumbnails/0/99"),
    "/neighbours/0/99999999999999999999",
]


@pytest.mark.parametrize("path", PATHS)
def test_only_what_was_opened_is_there(port, path):
    assert ask(port, path)[:2] == (404, b"there is nothing of this name\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_is_read_only(port, method):
    status, line, headers = ask(port, "/meta", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert line == b"this server is read only; use GET or HEAD\n"


def test_a_torn_address_is_answered():
    with served(host="0.0.0.0", token="é&x#y z") as server:
        port = server.server_address[1]
        assert ask(port, "//[::1?token=1")[0] == 403
        assert server.address.endswith("?token=%C3%A9%26x%23y%20z")
        assert ask(port, "/meta?token=%C3%A9%26x%23y%20z")[0] == 200


def test_points_without_a_picture(port):
    assert ask(port, "/thumbnails/0/1")[:2] == (204, b"")


def test_a_server_that_others_reach_asks_for_its_token():
    with pytest.raises(UserError, match="others can reach it, so it needs a token"):
        explorer().serve("0.0.0.0")
    with served(host="0.0.0.0", token="secret") as server:
        port = server.server_address[1]
        assert server.address.endswith("?token=secret")
        for path in ("/", "/meta", "/?token=wrong", "/?token=secre"):
            status, line, _ = ask(port, path)
            assert (status, line.decode()) == (
                403,
                "this server asks for its token; open the address that `horosphere explore` printed\n",
            )
        assert ask(port, "/?token=secret")[0] == 200
        assert ask(port, "/meta", **{"X-Token": "secret"})[0] == 200
        assert ask(port, "/meta", **{"X-Token": "wrong"})[0] == 403


def test_two_at_once_make_an_array_once(monkeypatch):
    made = []
    atlas = explorer().atlases[0]
    atlas._arrays["labels"] = lambda: made.append(time.sleep(0.05)) or b"x"
    threads = [threading.Thread(target=atlas.array, args=("labels",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


# -- the exported page ------------------------------------------------------------------------------------------------


def content(page, name):
    found = re.search(f'<script type="text/plain" id="{re.escape(name)}">([A-Za-z0-9+/=]*)</script>', page)
    return gzip.decompress(b64decode(found[1]))


def test_an_exported_page_holds_all_and_asks_nobody():
    made = explorer()
    page = made.page(quiet=True)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "connect-src" not in policy
    assert policy.startswith("default-src 'none'")
    meta = json.loads(content(page, "meta"))["atlases"][0]
    assert json.loads(content(page, "0/labels"))[0] == EVIL
    assert EVIL not in page  # nor anything that a browser would run
    numbers = np.frombuffer(content(page, "0/near"), "<u4").reshape(6, meta["nearest"]["k"])
    distances = np.frombuffer(content(page, "0/far"), "<f8").reshape(numbers.shape)
    for node in range(6):
        truth = made.atlases[0].neighbours(node)
        assert (numbers[node].tolist(), distances[node].tolist()) == (
            truth["numbers"],
            pytest.approx(truth["distances"]),
        )
    assert page == explorer().page(quiet=True)  # the same data make the same file


def test_a_title_is_a_text():
    page = explore(np.zeros((3, 2)), name='<img src=x onerror="alert(1)">').page(quiet=True)
    assert "<img" not in page


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tree.tsv").write_text(TREE)
    monkeypatch.setattr(Server, "serve_forever", lambda *_: pytest.fail("it serves, where it should refuse"))
    return runner(capsys)


def test_export_by_the_command(run):
    run("embed", "tree.tsv", *SHORT, "--out", "out", "--quiet")
    code, out, err = run("explore", "out", "--export", "tree.html")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"tree.html: one page of [0-9.]+ MB, for any browser, without a network\n", out)
    code, _, err = run("explore", "out", "--export", "tree.html")
    assert (code, err) == (2, "horosphere: tree.html exists already: choose another --export, or pass --overwrite\n")
    assert run("explore", "out", "--export", "tree.html", "--overwrite")[0] == 0


def test_what_is_read_is_not_replaced(run):
    np.savez("p.html", points=np.eye(4))
    Path("p.html.npz").rename("p.npz")
    Path("tree.html").write_text("a\tb\n")
    words = ["explore", "p.npz", "--edges", "tree.html", "--export", "tree.html", "--overwrite"]
    assert run(*words)[::2] == (2, "horosphere: --export tree.html: the points are read from it; choose another name\n")
    os.mkfifo("pipe.html")
    code, _, err = run("explore", "p.npz", "--export", "pipe.html", "--overwrite")
    assert (code, err) == (2, "horosphere: pipe.html is no file, and is not replaced: choose another --export\n")
    assert Path("tree.html").read_text() == "a\tb\n"


def test_two_side_by_side(run):
    np.savez("a.npz", points=np.eye(4))
    np.savez("b.npz", points=np.eye(4) / 2)
    assert (
        run("explore", "a.npz", "b.npz", "--geometry", "poincare", "--curvature", "0.9", "--export", "p.html")[0] == 0
    )
    meta = json.loads(content(Path("p.html").read_text(), "meta"))
    assert [atlas["name"] for atlas in meta["atlases"]] == ["a.npz", "b.npz"]
    code, _, err = run("explore", "a.npz", "b.npz", "a.npz", "--export", "q.html")
    assert (code, err) == (2, "horosphere: 3 embeddings: a page shows one, or 2 side by side; leave some out\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nothing"], "nothing: no such file or folder; give a run, or a file of points"),
        (["run", "--geometry", "lorentz"], "--geometry is for points of a file; run is a run, which knows its own"),
        (["p.npz", "--geometry", "torus"], "torus"),
        (["p.npz", "--export", "p.pdf"], "--export p.pdf: it is a web page; give it a name that ends in .html"),
        (["p.npz", "--token", " "], "argument --token"),
        (["p.npz", "--host", "no.such.host.invalid", "--token", "x"], "no.such.host.invalid, port 0: "),
    ],
)
def test_wrong_words(run, words, complaint):
    np.savez("p.npz", points=np.eye(4))
    Path("run").mkdir()
    code, out, err = run("explore", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err


def test_the_command_serves_until_it_is_stopped(tmp_path):
    np.savez(tmp_path / "p.npz", points=np.eye(4))
    words = [sys.executable, "-m", "horosphere", "explore", "p.npz", "--no-open"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        line = process.stdout.readline()
        port = int(re.fullmatch(r"p.npz: http://127.0.0.1:([0-9]+)/; Ctrl-C stops\n", line)[1])
        assert json.loads(ask(port, "/meta")[1])["title"] == "p.npz"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "stopped\n"
    assert process.returncode == 0
