"""A page of commands, carried out: its fenced blocks in order, on machines that are folders.

    ```bash machine=bank_a                  typed there, and has to end well; exit=2: with this status
    ```bash machine=telco terminal=party    typed in a terminal of its own, which stays open
    ```text machine=telco terminal=party    what is seen there afterwards
    ```toml machine=telco file=party.toml   a file that is there, as shown
    ```python machine=laptop                pasted into Python there
    <!-- press machine=telco terminal=party key=Ctrl-C -->

`machine=all` is every machine at once. What is seen is compared line by line and in order; `...` stands for
anything. Times, dates, digests and numbers with a decimal point differ from run to run, and may; all else may not.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.processes import end, start

BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$|^<!-- (press) (.*?)-->$", re.MULTILINE | re.DOTALL)
KEYS = {"Ctrl-C": signal.SIGINT, "kill": signal.SIGKILL}
VARIES = (
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "DATE"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "DIGEST"),
    (re.compile(r"\b\d+\.\d+\b"), "NUMBER"),
)
MAIN = "main"  # the terminal of blocks that name none


@dataclass(frozen=True)
class Step:
    """One block of a page."""

    line: int
    kind: str  # bash, text, toml, ..., press
    text: str
    options: dict[str, str] = field(default_factory=dict)


def steps_of(page: str) -> Iterator[Step]:
    """The blocks of a page, in order."""
    for found in BLOCK.finditer(page):
        kind, options, text, press, keys = found.groups()
        words = shlex.split(keys or options)
        given = dict(word.split("=", 1) for word in words if "=" in word)
        yield Step(page.count("\n", 0, found.start()) + 1, press or kind, text or "", given)


class Terminal:
    """A shell that types one block; all it shows is kept, and can be waited for."""

    def __init__(self, script: str, folder: Path, environment: Mapping[str, str]) -> None:
        self._lines: list[str] = []
        self._seen = 0  # lines that an earlier block has shown
        self._news = threading.Condition()
        self.process = start(
            ["bash", "-e", "-c", script], cwd=folder, env=dict(environment),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError), self.process.stdout as output:  # ValueError: closed at the end of the test
            for line in output:
                with self._news:
                    self._lines.append(line.rstrip())
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def shown(self) -> str:
        return "\n".join(self._lines)

    def see(self, text: str, deadline: float) -> None:
        """Wait until all lines of `text` were shown, in this order, after those that were asked for before."""
        for wanted in filter(None, (line.strip() for line in text.splitlines())):
            if wanted == "...":
                continue
            pattern, at = _pattern(wanted), self._seen
            while True:
                with self._news:
                    self._news.wait_for(lambda at=at: len(self._lines) > at or not self._reader.is_alive(), 0.2)
                    lines, over = self._lines[at:], not self._reader.is_alive()
                match = next((n for n, line in enumerate(lines) if pattern.fullmatch(_fixed(line.strip()))), None)
                if match is not None:
                    self._seen = at + match + 1
                    break
                at += len(lines)
                assert not (over and at == len(self._lines)), f"never shown: {wanted}\n--- shown:\n{self.shown}"
                assert time.monotonic() < deadline, f"not shown in time: {wanted}\n--- shown:\n{self.shown}"

    def end(self, deadline: float) -> int:
        """Wait until it has ended by itself; its status."""
        try:
            status = self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running\n--- shown:\n{self.shown}") from None
        self._reader.join(max(0.1, deadline - time.monotonic()))
        return status

    def press(self, key: str) -> None:
        os.killpg(self.process.pid, KEYS[key])

    def close(self) -> None:
        end(self.process)
        self._reader.join()


def _fixed(line: str) -> str:
    for pattern, word in VARIES:
        line = pattern.sub(word, line)
    return line


def _pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(_fixed(part)) for part in line.split("...")))


@dataclass
class Stage:
    """The machines of a page: folders, terminals, and what stands for names of the real world."""

    folders: Mapping[str, Path]  # machine -> where its commands are typed
    environment: Mapping[str, str]
    replaced: Mapping[str, str]  # text of the page -> text here
    seconds: float  # until everything has to be done
    terminals: dict[tuple[str, str], Terminal] = field(default_factory=dict)

    def play(self, page: str) -> None:
        """Carry out a page; what goes wrong is told with its line."""
        deadline = time.monotonic() + self.seconds
        try:
            for step in steps_of(page):
                try:
                    self._take(step, deadline)
                except AssertionError as error:
                    raise AssertionError(f"line {step.line} of the page, {step.kind}: {error}") from None
        finally:
            for terminal in self.terminals.values():
                terminal.close()

    def _take(self, step: Step, deadline: float) -> None:
        machine, name = step.options.get("machine", ""), step.options.get("terminal", MAIN)
        if not machine:
            assert step.kind != "bash", "a command block must say on which machine it is typed"
            return
        machines = list(self.folders) if machine == "all" else [machine]
        if step.kind in ("bash", "python"):
            for each in machines:
                self._type(each, name, step, deadline)
            if name == MAIN:
                self._finish(machines, int(step.options.get("exit", 0)), deadline)
        elif step.kind == "text":
            for each in machines:
                self.terminals[each, name].see(self._here(step.text), deadline)
        elif step.kind == "press":
            self.terminals[machine, name].press(step.options["key"])
        else:
            shown = (self.folders[machine] / step.options["file"]).read_text(encoding="utf-8")
            assert shown == self._here(step.text), f"{step.options['file']} is another:\n{shown}"

    def _type(self, machine: str, name: str, step: Step, deadline: float) -> None:
        before = self.terminals.get((machine, name))
        if before is not None:
            before.end(deadline)  # nobody can type before the prompt is back
        script = self._here(step.text)
        if step.kind == "python":
            pasted = self.folders[machine] / ".pasted.py"
            pasted.write_text(script, encoding="utf-8")
            script = f"python {pasted.name}"
        self.terminals[machine, name] = Terminal(script, self.folders[machine], self.environment)

    def _finish(self, machines: list[str], wanted: int, deadline: float) -> None:
        for machine in machines:
            terminal = self.terminals[machine, MAIN]
            status = terminal.end(deadline)
            assert status == wanted, f"ended with status {status} instead of {wanted}\n--- shown:\n{terminal.shown}"

    def _here(self, text: str) -> str:
        for there, here in self.replaced.items():
            text = text.replace(there, here)
        return text


def run_example(page: Path, number: int = 0) -> dict[str, Any]:
    """Carry out the first Python block of a page, or another; the names that it leaves."""
    found = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) > number, f"{page.name} has no such example"
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(found[number], str(page), "exec"), names)  # noqa: S102 - the page's own example
    return names
