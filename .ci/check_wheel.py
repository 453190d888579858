"""Build the wheel, check that it holds every file of both packages and no other, and try it in bare environments.

    python .ci/check_wheel.py --out dist --install python3.11 python3.12

Needs the package `build`. Each --install makes a new environment of that Python with the wheel alone and what it depends on, shows
the help and the version, and fits three lines of Python there.
"""

from __future__ import annotations

import argparse
import runpy
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("oneof", "oneof_paper")
FIT = """
from oneof import PartialLabelClassifier
y = [{"low"}, {"low", "high"}, {"low"}, {"high"}, {"high", "low"}, {"high"}] * 5
print(PartialLabelClassifier(random_state=0, quick=True).fit([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]] * 5, y).predict([[0.05], [1.15]]))
"""


def expected_files() -> set[str]:
    """Return the files that the packages have in the source tree."""
    names = set()
    for package in PACKAGES:
        for path in (ROOT / "src" / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                names.add(path.relative_to(ROOT / "src").as_posix())
    return names


def contents_fault(wheel: Path) -> str | None:
    """Return what is wrong with the contents of a wheel, or None."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = [name for name in names if name.endswith(".dist-info/METADATA")]
        texts = [archive.read(name).decode() for name in metadata]
    packaged = {name for name in names if ".dist-info/" not in name}
    missing = expected_files() - packaged
    surplus = packaged - expected_files()
    if missing:
        return f"the wheel must hold every file of the packages; it lacks {', '.join(sorted(missing)[:5])}."
    if surplus:
        return f"the wheel must hold no other files; it has {', '.join(sorted(surplus)[:5])}."
    for package in PACKAGES:
        if f"{package}/py.typed" not in packaged:
            return f"the wheel must hold {package}/py.typed, or types are not seen."
    version = runpy.run_path(str(ROOT / "src/oneof/version.py"))["__version__"]
    if len(texts) != 1 or f"\nVersion: {version}\n" not in texts[0]:
        return f"the wheel must have version {version}."
    return None


def build_wheel(out: Path, sdist: bool) -> Path:
    """Build the wheel, and a source archive if it is wanted, and return the path of the wheel."""
    kinds = ["--wheel", "--sdist"] if sdist else ["--wheel"]
    subprocess.run([sys.executable, "-m", "build", *kinds, "--outdir", str(out), str(ROOT)], check=True)
    return max(out.glob("oneof-*.whl"), key=lambda path: path.stat().st_mtime)


def try_in_environment(python: str, wheel: Path) -> None:
    """Install a wheel into a new environment of this Python, and use it."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run([python, "-m", "venv", name], check=True)
        scripts = Path(name) / ("Scripts" if sys.platform == "win32" else "bin")
        subprocess.run([scripts / "python", "-m", "pip", "install", "--quiet", wheel.resolve()], check=True)
        commands = [[scripts / "oneof", "--version"], [scripts / "oneof", "--help"], [scripts / "python", "-c", FIT]]
        for command in commands:
            done = subprocess.run(command, cwd=name, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{python}: {done.stderr}")
            print(f"{python}: {done.stdout.strip().splitlines()[-1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the wheel")
    parser.add_argument("--sdist", action="store_true", help="build a source archive too")
    parser.add_argument("--wheel", type=Path, help="check this wheel; do not build one")
    parser.add_argument("--install", nargs="*", default=[], metavar="PYTHON", help="Pythons to try the wheel with")
    asked = parser.parse_args()
    wheel = asked.wheel or build_wheel(asked.out, asked.sdist)
    fault = contents_fault(wheel)
    if fault is not None:
        sys.exit(f"{wheel}: {fault}")
    print(f"{wheel}: {len(expected_files())} files, as in the source")
    for python in asked.install:
        try_in_environment(python, wheel)


if __name__ == "__main__":
    main()
