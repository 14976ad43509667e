"""Build a release and check it: `make dist`, or `make dist TAG=v0.2.0` for a tag.

A version is a tag on a commit whose package, changelog and citation say the same. The wheel and the sdist are built,
looked into, installed in an environment of their own and tried there; what is in that environment is written down as
an SBOM.
Nothing is published.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("build==1.6.1", "twine==7.0.0", "cyclonedx-bom==7.5.0")
EXTRAS = "cli,report,tables"  # what a newcomer installs


def version() -> str:
    """What the package says."""
    text = (ROOT / "src/colonnade/__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)[0]


def disagreements(tag: str | None = None) -> list[str]:
    """Where another version stands than in the package; `tag`: what is to be released."""
    said, found = version(), []
    citation = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    if citation != [said]:
        found.append(f"CITATION.cff says {', '.join(citation) or 'nothing'}")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[?([^\]\s,]+)\]?(?:, to become (\S+))?", changes, re.MULTILINE)
    first, next_one = headings[0]
    if tag is None:
        if said not in (first, next_one):
            found.append(
                f"the newest heading of CHANGELOG.md is {first}" + (f", to become {next_one}" if next_one else "")
            )
        return found
    if tag != f"v{said}":
        found.append(f"the tag is {tag}")
    if first != said:
        found.append(f"the newest heading of CHANGELOG.md is {first}; a release needs ## [{said}]")
    return found


def in_wheel(path: Path) -> list[str]:
    """What is wrong with the contents of a wheel."""
    names = zipfile.ZipFile(path).namelist()
    outside = [n for n in names if not n.startswith(("colonnade/", f"colonnade-{version()}.dist-info/"))]
    templates = (ROOT / "src/colonnade/report/templates").glob("*.j2")
    needed = ["colonnade/py.typed", *(f"colonnade/report/templates/{one.name}" for one in templates)]
    return [f"{name} is outside of the package" for name in outside] + [
        f"{n} is missing" for n in needed if n not in names
    ]


def in_sdist(path: Path) -> list[str]:
    """What is missing in an sdist: whoever has it can test and build again."""
    with tarfile.open(path) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    needed = (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "Makefile",
        "constraints.txt",
        "tests/conftest.py",
        "docs/README.md",
    )
    return [f"{name} is missing" for name in needed if name not in names]


def environment(folder: Path, *packages: str) -> Path:
    """The Python of a new environment with these packages, in the versions that were tested."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", *packages], check=True)
    return python


def main() -> int:
    """Build, check, try, write down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", help="the tag to be released, e.g. v0.2.0")
    tag = parser.parse_args().tag or None
    wrong = disagreements(tag)
    if wrong:
        print(f"error: the package says {version()}, but {'; '.join(wrong)}", file=sys.stderr)
        return 2
    out = ROOT / "dist"
    for old in out.glob("*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as place:
        tools = environment(Path(place) / "tools", *TOOLS)
        subprocess.run([tools, "-m", "build", "--outdir", out, ROOT], check=True, stdout=subprocess.DEVNULL)
        wheel, sdist = next(out.glob("*.whl")), next(out.glob("*.tar.gz"))
        subprocess.run([tools, "-m", "twine", "check", "--strict", wheel, sdist], check=True)
        if wrong := in_wheel(wheel) + in_sdist(sdist):
            print("error: " + "; ".join(wrong), file=sys.stderr)
            return 2
        python = environment(Path(place) / "clean", f"{wheel}[{EXTRAS}]")
        told = subprocess.run(
            [python, "-m", "colonnade", "doctor", "--json"], check=True, capture_output=True, cwd=place
        )
        assert json.loads(told.stdout)["colonnade"] == version()
        subprocess.run([tools, "-m", "cyclonedx_py", "environment", python, "-o", out / "sbom.cdx.json"], check=True)
    print(f"checked: {wheel.name}, {sdist.name}; what it was tried with: sbom.cdx.json")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
