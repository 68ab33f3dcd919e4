"""The page's bundle and its geometry: what its sources build, and what Python computes.

Node is needed here, and by nobody who uses the explorer.
"""

import json
import math
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import mpmath
import pytest
import torch

from horosphere.explorer.page import BUNDLE
from horosphere.geometry import Lorentz, lorentz_to_halfspace, lorentz_to_klein, lorentz_to_poincare

WEB = Path(__file__).parents[2] / "web"
LOCK = json.loads(WEB.joinpath("package-lock.json").read_text())["packages"]
NO_NETWORK = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ENOTCACHED|E40[13]|E50\d")
COUNT, POINTS = 1_000, 3
WANDER, FAR = 12.0, 30.0  # radii of isometries and points; of pairs
TOLERANCE = 1e-9
L = Lorentz(1.0)


def npm(*words, folder, **env):
    command = [shutil.which(words[0]), *words[1:]]
    return subprocess.run(command, cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, timeout=300)


def said(done):
    return f"{done.stdout}\n{done.stderr}"[-4000:]


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """The sources of the page, with what builds and tests them."""
    if not WEB.is_dir() or not all(map(shutil.which, ("npm", "npx"))):
        pytest.skip("needs the sources of the page, and npm")
    if (WEB / "node_modules").is_dir():
        return WEB
    folder = tmp_path_factory.mktemp("page") / "web"
    shutil.copytree(WEB, folder)
    done = npm("npm", "ci", "--no-audit", "--no-fund", "--fetch-retries=1", folder=folder)
    if done.returncode and (why := NO_NETWORK.search(said(done))):
        pytest.skip(f"needs a registry of packages: npm ci ends with {why[0]}")
    assert done.returncode == 0, said(done)
    return folder


# -- geometry ---------------------------------------------------------------------------------------------------------


def pair(z):
    return [float(z.real), float(z.imag)]


def drawn(draws, most):
    """A point of the hyperboloid, up to a radius; all radii are as likely."""
    r, angle = draws.uniform(0, most), draws.uniform(0, 2 * math.pi)
    return [math.sinh(r) * math.cos(angle), math.sinh(r) * math.sin(angle)]


def isometry(draws):
    """(a, b) with |a|² - |b|² = 1: turn, go, turn."""
    half, one, two = draws.uniform(0, WANDER) / 2, draws.uniform(0, 2 * math.pi), draws.uniform(0, 2 * math.pi)
    return mpmath.cosh(half) * mpmath.expj(one), mpmath.sinh(half) * mpmath.expj(two)


def lifted(x):
    """X, Y, T in many digits."""
    X, Y = map(mpmath.mpf, x)
    return mpmath.matrix([X, Y, mpmath.sqrt(1 + X * X + Y * Y)])


def carried(a, b, x):
    """Möbius' (az + b)/(b̄z + ā) of the place in the disk, back on the hyperboloid."""
    X, Y, T = lifted(x)
    z = mpmath.mpc(X, Y) / (1 + T)
    w = (a * z + b) / (mpmath.conj(b) * z + mpmath.conj(a))
    return pair(2 * w / (1 - abs(w) ** 2))


def distance(x, y):
    """2 asinh √(-<x - y, x - y>)/2"""
    X, Y, T = lifted(x) - lifted(y)
    return 2 * mpmath.asinh(mpmath.sqrt(X * X + Y * Y - T * T) / 2)


def geodesic(x, y, t):
    d = distance(x, y)
    X, Y, _ = (mpmath.sinh((1 - t) * d) * lifted(x) + mpmath.sinh(t * d) * lifted(y)) / mpmath.sinh(d)
    return [float(X), float(Y)]


@pytest.fixture(scope="module")
def values():
    """What web/test/geometry.test.ts reads: fifty digits, then our own maps between the models."""
    draws = random.Random(0)
    with mpmath.workdps(50):
        isometries = []
        for _ in range(COUNT):
            a, b = isometry(draws)
            points = [drawn(draws, WANDER) for _ in range(POINTS)]
            isometries.append(
                {"a": pair(a), "b": pair(b), "points": points, "moved": [carried(a, b, x) for x in points]}
            )
        pairs = [[drawn(draws, most), drawn(draws, most)] for most in (1.0, WANDER, FAR) for _ in range(COUNT // 3)]
        pairs += [[x, [x[0] + 1e-6, x[1]]] for x, _ in pairs[: COUNT // 10]]  # near each other
        distances = [{"x": x, "y": y, "d": float(distance(x, y))} for x, y in pairs]
        shares = [draws.random() for _ in pairs]
        geodesics = [
            {"x": x, "y": y, "t": t, "point": geodesic(x, y, mpmath.mpf(t))}
            for (x, y), t in zip(pairs, shares, strict=True)
        ]
    for one in isometries:
        moved = torch.tensor(one["moved"], dtype=torch.float64)
        turned = torch.stack([-moved[:, 1], moved[:, 0]], 1)  # our half-space has its far point at the last axis
        one["disk"] = lorentz_to_poincare(moved, 1.0).tolist()
        one["klein"] = lorentz_to_klein(moved, 1.0).tolist()
        one["halfplane"] = lorentz_to_halfspace(turned, 1.0).tolist()
    return {"isometries": isometries, "distances": distances, "geodesics": geodesics}


def test_our_geometry_is_that_of_the_values(values):
    """Else the page would agree with something else than what the models were trained in."""
    x, y, d = (torch.tensor([one[key] for one in values["distances"]], dtype=torch.float64) for key in "xyd")
    torch.testing.assert_close(L.dist(x, y), d, rtol=TOLERANCE, atol=TOLERANCE)
    near = d < WANDER
    t, point = (torch.tensor([one[key] for one in values["geodesics"]], dtype=torch.float64) for key in ("t", "point"))
    found = L.geodesic(x, y, t[:, None])[near]
    size = point[near].norm(dim=1).clamp(min=1.0)
    assert ((found - point[near]).norm(dim=1) / size).max() < 1e-6  # far out single coordinates have fewer digits


def test_page_and_python_agree(web, values, tmp_path):
    file = tmp_path / "geometry.json"
    file.write_text(json.dumps(values, allow_nan=False))
    done = npm("npx", "--no-install", "vitest", "run", "--reporter=json", folder=web, HOROSPHERE_GEOMETRY=str(file))
    assert done.returncode == 0, said(done)
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert (found["numFailedTests"], found["numPendingTests"]) == (0, 0)
    mine = next(one for one in found["testResults"] if one["name"].endswith("geometry.test.ts"))
    assert {one["title"]: one["status"] for one in mine["assertionResults"]} == {
        "isometries and models": "passed",
        "distances": "passed",
        "geodesics": "passed",
    }


# -- the bundle -------------------------------------------------------------------------------------------------------


def other_versions(web):
    """What is installed beside what the lock asks for. Not every machine needs every optional package."""
    wrong = []
    for place, entry in LOCK.items():
        file = web / place / "package.json"
        found = json.loads(file.read_text())["version"] if place and file.is_file() else None
        if place and found != entry["version"] and not (found is None and entry.get("optional")):
            wrong.append(f"{place.removeprefix('node_modules/')} is {found}, the lock asks for {entry['version']}")
    return wrong


def test_the_bundle_is_what_its_sources_build(web, tmp_path):
    done = npm("npm", "run", "build", "--", "--outDir", str(tmp_path / "page"), "--emptyOutDir", folder=web)
    wrong = other_versions(web)
    hint = f"other versions are installed: {'; '.join(wrong)}" if wrong else "run npm run build in web/ and commit it"
    assert done.returncode == 0, f"{said(done)}\n{hint}"
    built, committed = (
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in (tmp_path / "page", BUNDLE)
    )
    assert sorted(built) == sorted(committed)
    assert [name for name in built if built[name] != committed[name]] == [], hint


def test_the_bundle_is_small():
    assert sum(path.stat().st_size for path in BUNDLE.iterdir()) < 300_000


def test_the_lock_names_no_host():
    """Packages come from whichever registry a machine uses, and are known by their digests."""
    assert [place for place, entry in LOCK.items() if "resolved" in entry] == []
    assert [place for place, entry in LOCK.items() if place and not entry["integrity"].startswith("sha512-")] == []
