"""TensorBoard: event files in a folder, by the writer that comes with torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.extras import need
from colonnade.trackers.base import Setting, Tracker


@dataclass
class TensorBoard(Tracker):
    """Scalars by round, texts for what belongs to them, and the settings as a table."""

    folder: str | Path
    _writer: Any = field(default=None, init=False, repr=False)
    _told: set[str] = field(default_factory=set, init=False, repr=False)

    def check(self) -> None:
        """Say now if the library is not installed."""
        need("tensorboard", extra="tensorboard", purpose="--track tensorboard")

    def open(self) -> None:
        """Make a new event file."""
        self.check()
        module = need("torch.utils.tensorboard", extra="tensorboard", purpose="TensorBoard")
        self._writer, self._told = module.SummaryWriter(str(self.folder)), set()

    def write(self, values: Mapping[str, float], step: int, texts: Mapping[str, str]) -> None:
        """Scalars; a text once."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        for name, text in texts.items():
            if name not in self._told:
                self._writer.add_text(f"what {name} is", text, step)
                self._told.add(name)

    def finish(self, results: Mapping[str, float], settings: Mapping[str, Setting], stop: str) -> None:
        """Results as scalars, settings as a text."""
        for name, value in results.items():
            self._writer.add_scalar(f"end/{name}", value, 0)
        lines = "\n".join(f"| {name} | {value} |" for name, value in settings.items())
        self._writer.add_text("settings", f"| setting | value |\n| --- | --- |\n{lines}")
        self._writer.add_text("end", stop)
        self._writer.close()
