"""Measure on a machine that has a GPU, Python and PyTorch, and nothing else: no network, no history of this checkout.

    here    python tools/away.py pack --commit HASH --data-dir DIR    what the other machine lacks, in parts, in .carry/
    there   python tools/away.py keep .carry/part-1                   what was carried over, kept beside the checkout
    there   python tools/away.py measure --minutes 9 --out OUT cifar-zoo cifar-heads
    here    python tools/away.py join OUT                             to benchmarks/unfinished; if complete, results

Parts are for machines to which only so much can be carried at a time. `measure` may be called again and again: its
workers keep every training (`colonnade bench --runs`), go on with what is missing, and live on between calls where the
machine lets them. Benchmarks that cannot keep trainings are given with `--whole`. Results of what is finished are in
OUT after every call, logs of the workers beside them.

A table may take several machines, each gone with all it kept, and all of its figures must be of one commit. So what is
carried are the sources of a commit, which need not be the last one, and the cases that are in
`benchmarks/unfinished` at that commit already: they are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = Path("/dev/shm/away")  # memory: fast, and gone with the machine
PACKAGES = (  # what `python -m colonnade.bench` needs and a machine with PyTorch and scikit-learn may not have
    "pydantic", "pydantic-core", "annotated-types", "typing-extensions", "typing-inspection", "dp-accounting",
    "absl-py", "attrs", "dm-tree", "mpmath", "cryptography", "cffi", "pycparser", "threadpoolctl",
)  # fmt: skip
FOR_TESTS = (
    "pytest", "pluggy", "iniconfig", "hypothesis", "sortedcontainers", "typer", "rich", "click", "shellingham",
    "markdown-it-py", "mdurl", "pygments",
)  # fmt: skip
PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_28_x86_64")
PART = 57  # MB
PAUSE = 2.0  # seconds between questions whether workers are done


def pack(
    carry: Path, data: Path | None, python: str, most: float, commit: str, packages: Sequence[str] = PACKAGES
) -> list[Path]:
    """Fill a folder with parts to carry over, as few as may be: wheels, sources, and the files of a folder of data."""
    shutil.rmtree(carry, ignore_errors=True)
    with tempfile.TemporaryDirectory() as made:
        download(Path(made), python, packages)
        sources(Path(made), commit)
        files = [(path, "wheels") for path in Path(made).glob("*.whl")]
        files += [(path, "sources") for path in Path(made).glob("*.tar.gz")]
        files += [(path, "begun") for path in begun(commit)]
        files += [(path, "data") for path in (data.iterdir() if data else ()) if path.is_file()]
        parts: list[float] = []  # bytes in each
        for path, kind in sorted(files, key=lambda one: -one[0].stat().st_size):
            size = path.stat().st_size
            number = next((n for n, held in enumerate(parts) if held + size <= most * 1e6), len(parts))
            if number == len(parts):
                parts.append(0.0)
            parts[number] += size
            there = carry / f"part-{number + 1}" / kind
            there.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, there / path.name)
    return [carry / f"part-{number + 1}" for number in range(len(parts))]


def download(wheels: Path, python: str, packages: Sequence[str]) -> None:
    """The wheels that the other machine needs."""
    words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", python]
    words += [word for one in PLATFORMS for word in ("--platform", one)]
    pip = [sys.executable, "-m", "pip", *words, "--constraint", str(ROOT / "constraints.txt"), "--dest", str(wheels)]
    subprocess.run([*pip, *packages], check=True)


def sources(folder: Path, commit: str) -> None:
    """The program and the benchmarks of a commit, in a file with its name."""
    words = ["archive", "--format=tar.gz", f"--output={folder / commit}.tar.gz", commit, "src", "benchmarks"]
    subprocess.run(["git", "-C", str(ROOT), *words], check=True)


def whole(commit: str) -> str:
    """The whole name of a commit."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "--verify", f"{commit}^{{commit}}"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def begun(commit: str) -> list[Path]:
    """The unfinished tables of a commit."""
    there = sorted((ROOT / "benchmarks" / "unfinished").glob("*.json"))
    return [path for path in there if json.loads(path.read_text(encoding="utf-8"))["commit"] == commit]


def keep(parts: Iterable[Path], place: Path) -> None:
    """Put parts where later calls find them, whatever becomes of the checkout; wheels and sources are unpacked."""
    for part in parts:
        for archive in (part / "sources").glob("*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(place / "commits" / archive.name.partition(".")[0], filter="data")
        if (part / "begun").exists():
            shutil.copytree(part / "begun", place / "begun", dirs_exist_ok=True)
        for wheel in (part / "wheels").glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(place / "packages")
        if (part / "data").exists():
            shutil.copytree(part / "data", place / "data", dirs_exist_ok=True)


class Site:
    """Where the trainings of one commit are kept, and its workers."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.place, self.device, self.seeds, self.threads = given.place, given.device, given.seeds, given.threads
        self.commit = given.commit or self._only_one()
        self.folder = self.place / "commits" / self.commit

    def _only_one(self) -> str:
        """The commit whose sources were carried over."""
        known = sorted(path.name for path in (self.place / "commits").glob("*"))
        if len(known) != 1:
            told = f"there are {', '.join(known)}" if known else "none was carried over"
            raise SystemExit(f"measure needs the commit of the sources, and {told}; say --commit HASH")
        return known[0]

    def lay(self) -> None:
        """A copy of the sources, which does not change under the workers: those carried over, or else those here."""
        for name in ("src", "benchmarks"):
            if not (self.folder / name).exists():
                shutil.copytree(ROOT / name, self.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("runs", "out", "logs"):
            (self.folder / name).mkdir(exist_ok=True)

    def command(self, bench: str, *more: str) -> list[str]:
        """One call of a benchmark."""
        where = ["--data-dir", str(self.place / "data")] if (self.place / "data").exists() else []
        said = (self.folder / "benchmarks" / f"{bench}.toml").read_text(encoding="utf-8")
        own = re.search(r'^options = ".*--seeds (\d+)', said, re.MULTILINE)  # of its published command
        how = ["--device", self.device, "--seeds", own[1] if own else str(self.seeds), "--json"]
        return [sys.executable, "-m", "colonnade.bench", bench, *where, *how, *more]

    def kept(self, bench: str) -> tuple[str, ...]:
        """Words that keep its trainings, and leave out cases that were measured on an earlier machine."""
        begun = self.place / "begun" / f"{bench}.json"
        beyond = ("--beyond", str(begun)) if begun.exists() else ()
        return ("--runs", str(self.folder / "runs" / bench), *beyond)

    def environment(self) -> dict[str, str]:
        """One thread that does not spin, since the work is the GPU's; or as many as there are."""
        threads = {"OMP_NUM_THREADS": str(self.threads), "GOMP_SPINCOUNT": "1000"} if self.threads else {}
        paths = os.pathsep.join([str(self.folder / "src"), str(self.place / "packages")])
        return {
            **os.environ,
            "PYTHONPATH": paths,
            "COLONNADE_COMMIT": self.commit,
            **threads,
            "TORCHINDUCTOR_CACHE_DIR": str(self.place / "compiled"),
        }

    def run(self, words: Sequence[str], log: Path) -> int:
        """Call a benchmark and wait for it; what it says goes to a file."""
        with log.open("a") as told:
            told.write(f"{time.strftime('%H:%M:%S')} {' '.join(words[3:])}\n")
            told.flush()
            done = subprocess.run(words, check=False, cwd=self.folder, env=self.environment(), stdout=told, stderr=told)
            return done.returncode

    def work(self, number: int, kept: Sequence[str], whole: Sequence[str]) -> None:
        """What one worker does: every second one begins at the end, so that nobody waits before the middle."""
        log = self.folder / "logs" / f"worker-{number}.log"
        for bench in kept if number % 2 == 0 else reversed(kept):
            self.run(self.command(bench, *self.kept(bench)), log)
        for place, bench in enumerate(whole):
            out = self.folder / "out" / f"{bench}.json"
            if place % 2 == number % 2 and not out.exists():
                self.run(self.command(bench, "--out", str(out)), log)
        (self.folder / f"done-{number}").touch()

    def start(self, number: int, kept: Sequence[str], whole: Sequence[str]) -> subprocess.Popen[bytes] | None:
        """A worker in a session of its own; none where it lives or is done."""
        if (self.folder / f"done-{number}").exists() or self._lives(number):
            return None
        words = [sys.executable, __file__, "work", "--number", str(number), "--commit", self.commit]
        words += [
            "--device",
            self.device,
            "--seeds",
            str(self.seeds),
            "--threads",
            str(self.threads),
            "--place",
            str(self.place),
            *kept,
        ]
        words += [word for bench in whole for word in ("--whole", bench)]
        worker = subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL)
        (self.folder / f"pid-{number}").write_text(str(worker.pid))
        return worker

    def _lives(self, number: int) -> bool:
        try:
            words = Path(f"/proc/{(self.folder / f'pid-{number}').read_text()}/cmdline").read_bytes()
        except OSError:
            return False
        return b"work" in words.split(b"\0")

    def collect(self, kept: Sequence[str], out: Path) -> None:
        """Results of what is finished."""
        out.mkdir(parents=True, exist_ok=True)
        for bench in kept:
            if any((self.folder / "runs").glob(f"{bench}/*/bench.json")):
                told = self.command(bench, *self.kept(bench), "--finished", "--out", str(out / f"{bench}.json"))
                self.run(told, self.folder / "logs" / "collect.log")
        for path in (*(self.folder / "out").glob("*.json"), *(self.folder / "logs").glob("*.log")):
            shutil.copy(path, out)


def measure(site: Site, given: argparse.Namespace) -> bool:
    """Start what does not run, wait until it is done or time is up, and collect; whether it is done."""
    begun = time.monotonic()
    site.lay()
    kept, whole = tuple(given.benches), tuple(given.whole)
    for path in site.folder.glob("done-*"):  # another call may ask for more
        path.unlink()
    workers = [worker for n in range(given.workers) if (worker := site.start(n, kept, whole)) is not None]
    flags = [site.folder / f"done-{n}" for n in range(given.workers)]
    while not all(flag.exists() for flag in flags) and time.monotonic() - begun < 60 * given.minutes:
        time.sleep(PAUSE)
        for worker in workers:
            worker.poll()  # nobody else buries it
    done = all(flag.exists() for flag in flags)
    site.collect(kept, given.out)
    counts = [f"{bench} {len(list((site.folder / 'runs').glob(f'{bench}/*/bench.json')))}" for bench in kept]
    sys.stdout.write(f"{'done' if done else 'not done yet'}; trainings: {', '.join(counts)}\n")
    return done


def join(out: Path) -> list[str]:
    """Add what came back to the tables of its commit, and say what became of each."""
    from colonnade.bench.outcome import check_same, place_of, read, write
    from colonnade.bench.perform import added, lacking

    told = []
    for path in sorted(out.glob("*.json")):
        part, beside = read(path), ROOT / "benchmarks" / "unfinished" / f"{path.stem}.json"
        check_same(part, beside)
        table = added(part, beside)
        missing = lacking(table)
        where = beside if missing else ROOT / "benchmarks" / "results" / beside.name
        if where.exists() and place_of(read(where).machine) != place_of(table.machine):  # as speed and speed-cuda
            where = where.with_stem(f"{where.stem}-{str(table.machine['device']).partition(':')[0]}")
        where.parent.mkdir(exist_ok=True)
        write(table, where)
        if not missing:
            beside.unlink(missing_ok=True)
        told.append(f"{where.relative_to(ROOT)}: " + (f"still without {', '.join(missing)}" if missing else "complete"))
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """0: done; 3: `measure` ended before its work did."""
    given = _parser().parse_args(arguments)
    if given.verb == "pack":
        packages = PACKAGES + (FOR_TESTS if given.tests else ())
        for part in pack(given.carry, given.data_dir, given.python, given.most_mb, whole(given.commit), packages):
            size = sum(path.stat().st_size for path in part.rglob("*") if path.is_file())
            sys.stdout.write(f"{part} {size / 1e6:.0f} MB\n")
    elif given.verb == "keep":
        keep(given.parts, given.place)
    elif given.verb == "join":
        from colonnade.errors import ColonnadeError  # here; there the program is not installed

        try:
            sys.stdout.writelines(f"{line}\n" for line in join(given.out))
        except ColonnadeError as error:
            raise SystemExit(f"error: {error}") from None
    elif given.verb == "work":
        Site(given).work(given.number, given.benches, given.whole)
    elif not measure(Site(given), given):
        return 3
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("pack", help="here: fill .carry")
    one.add_argument("--commit", default="HEAD", help="whose sources are carried")
    one.add_argument("--data-dir", type=Path, help="folder whose files are carried, too")
    one.add_argument("--tests", action="store_true", help="what tests need, too")
    one.add_argument("--python", default="3.12", help="of the other machine")
    one.add_argument("--most-mb", type=float, default=PART, help="size of a part")
    one.add_argument("--carry", type=Path, default=ROOT / ".carry")
    one = verbs.add_parser("keep", help="there: keep parts that were carried over")
    one.add_argument("parts", nargs="+", type=Path)
    one.add_argument("--place", type=Path, default=PLACE)
    one = verbs.add_parser("join", help="here: add what came back to the tables")
    one.add_argument("out", type=Path, help="folder of what came back")
    for verb, told in (("measure", "there: train, wait, collect"), ("work", "what measure starts")):
        one = verbs.add_parser(verb, help=told)
        one.add_argument("benches", nargs="*", help="benchmarks of cases, in this order")
        one.add_argument("--whole", action="append", default=[], help="a benchmark that keeps no trainings")
        one.add_argument("--commit", help="of the sources; needed where none or several were carried over")
        one.add_argument("--device", default="cuda")
        one.add_argument("--seeds", type=int, default=3, help="of benchmarks that do not say how many themselves")
        one.add_argument("--threads", type=int, default=1, help="of each worker; 0: as many as there are")
        one.add_argument("--place", type=Path, default=PLACE)
        if verb == "work":
            one.add_argument("--number", type=int, required=True)
        else:
            one.add_argument("--workers", type=int, default=2)
            one.add_argument("--minutes", type=float, default=9.0)
            one.add_argument("--out", type=Path, required=True)
    return parser


if __name__ == "__main__":
    sys.exit(main())
