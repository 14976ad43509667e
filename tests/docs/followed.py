"""An example page, followed word by word: what is typed is typed, what is saved is saved, what is seen is compared.

    ```bash            typed line by line; `colonnade` runs in this process, where its libraries are loaded already
    ```python          run, one block after the other
    ```toml file=X     saved as X, in any language; if X is there already, these lines are in it, in this order
    ```text            what the block before it showed: these lines, in this order

In what is seen, `...` stands for anything, spaces count as one, and numbers with a decimal point may be a little
different: another machine sums in another order. All else must be as it stands on the page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli.conftest import call_main
from tests.docs.pages import Step, steps_of

DECIMAL = re.compile(r"-?\b\d+\.\d+\b")
NEAR = 0.05  # of a number beyond 1, or by itself below


@dataclass
class Reader:
    """Somebody who does what a page says, in a folder of its own."""

    folder: Path
    seen: list[str] = field(default_factory=list)  # what the last block showed
    names: dict[str, object] = field(default_factory=dict)  # of the Python blocks
    typed: list[str] = field(default_factory=list)  # all commands

    def follow(self, page: str) -> None:
        """Do all of it; what goes wrong is told with its line."""
        with _in(self.folder):
            for step in steps_of(page):
                try:
                    self._take(step)
                except AssertionError as error:
                    raise AssertionError(f"line {step.line} of the page, {step.kind}: {error}") from None

    def _take(self, step: Step) -> None:
        if "file" in step.options:
            self._save(Path(step.options["file"]), step.text)
        elif step.kind == "bash":
            self.seen = [line for typed in step.text.splitlines() for line in self._type(typed).splitlines()]
        elif step.kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(step.text, f"line {step.line}", "exec"), self.names)  # noqa: S102 - the page's own words
            self.seen = out.getvalue().splitlines()
        else:
            compare(step.text.splitlines(), self.seen)

    def _type(self, line: str) -> str:
        self.typed.append(line)
        words = shlex.split(line, comments=True)
        if words[0] == "cd":
            os.chdir(words[1])
            return ""
        if words[0] != "colonnade":
            done = subprocess.run(["bash", "-ec", line], capture_output=True, text=True, check=False)
            status, shown = done.returncode, done.stdout + done.stderr
        else:
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                status = call_main(*words[1:])
            shown = out.getvalue()
        assert status == 0, f"{line}: status {status}\n{shown}"
        return shown

    def _save(self, path: Path, text: str) -> None:
        if path.exists():
            compare(text.splitlines(), path.read_text(encoding="utf-8").splitlines())
        else:
            path.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _in(folder: Path) -> Iterator[None]:
    """As contextlib.chdir, which Python 3.10 does not have."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def compare(wanted: list[str], seen: list[str]) -> None:
    """Every line of `wanted` is among the seen ones, in this order."""
    at = 0
    for line in filter(str.strip, wanted):
        found = next((n for n in range(at, len(seen)) if alike(line, seen[n])), None)
        assert found is not None, f"never shown: {line}\n--- shown:\n" + "\n".join(seen)
        at = found + 1


def alike(wanted: str, seen: str) -> bool:
    """Whether a line says the same, with numbers that are near."""
    wanted, seen = " ".join(wanted.split()), " ".join(seen.split())
    parts = [r"(-?\d+\.\d+)".join(map(re.escape, DECIMAL.split(part))) for part in wanted.split("...")]
    found = re.fullmatch(".*".join(parts), seen)
    numbers = [number for part in wanted.split("...") for number in DECIMAL.findall(part)]
    return found is not None and all(
        abs(float(one) - float(other)) <= NEAR * max(1.0, abs(float(one)))
        for one, other in zip(numbers, found.groups(), strict=True)
    )
