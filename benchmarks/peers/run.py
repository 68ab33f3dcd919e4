"""The suites that other libraries have for their own models, on ours: `./run peers`.

python benchmarks/peers/run.py [--checkout FOLDER] [options of pytest]

The tests come from the source archive of the installed version, which pip brings into build/peers/ once. Archives leave
some tests out. --checkout names a checkout of transformers of about the same version: its tests of generation run too.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
PEERS = ("transformers", "timm")  # their archives have tests/; a test_PACKAGE.py beside this file runs them


def suite(package: str, checkout: Path | None) -> Path:
    """The folder that holds PACKAGE_tests, an importable copy of the package's tests."""
    kind = "-with-generation" if checkout else ""
    place = ROOT / "build" / "peers" / f"{package}-{version(package)}{kind}"
    tests = place / f"{package}_tests"
    if not tests.is_dir():
        with TemporaryDirectory() as aside:
            made = Path(aside, "tests")
            _unpack(_archive(package, Path(aside)), made)
            if checkout:
                shutil.copytree(checkout / "tests" / "generation", made / "generation")
            for file in made.rglob("*.py"):  # there is a package of that name here already
                text = file.read_text(encoding="utf-8").replace("\nfrom tests.", f"\nfrom {tests.name}.")
                file.write_text(text, encoding="utf-8")
            place.mkdir(parents=True, exist_ok=True)
            shutil.move(made, tests)
    return place


def _archive(package: str, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package]
    subprocess.run([*pip, "--dest", folder, f"{package}=={version(package)}"], check=True)
    return next(folder.glob("*.tar.gz"))


def _unpack(archive: Path, made: Path) -> None:
    """tests/ of an archive, whose files lie below a folder with its name and version."""
    with tarfile.open(archive) as files:
        inside = [member for member in files.getmembers() if member.name.split("/")[1:2] == ["tests"]]
        files.extractall(made.parent / "all", inside, filter="data")
    shutil.move(next((made.parent / "all").glob("*/tests")), made)
    (made / "__init__.py").touch()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", metavar="FOLDER", type=Path, help="of transformers, for its tests of generation")
    asked, more = parser.parse_known_args()
    failed = 0
    for package in PEERS:
        checkout = asked.checkout if package == "transformers" else None
        places = [str(ROOT), str(suite(package, checkout)), os.environ.get("PYTHONPATH", "")]
        changed = {"PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        # without our settings: their marks are not ours
        pytest = ["-m", "pytest", "-q", "-c", os.devnull, f"--rootdir={ROOT}", "-p", "no:cacheprovider"]
        command = [sys.executable, *pytest, HERE / f"test_{package}.py", *more]
        failed |= subprocess.run(command, env={**os.environ, **changed}, cwd=ROOT).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
