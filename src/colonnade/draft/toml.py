"""The commented configuration: what was found, section by section, with what may be changed about it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.draft.files import PartyFile
from colonnade.draft.ids import Match
from colonnade.draft.labels import Label
from colonnade.report.repeat import toml_key, toml_value

SMALL, SMALL_BATCH, BATCH = 5_000, 128, 512  # rows below which a round takes fewer: small tables need many rounds


@dataclass(frozen=True)
class Draft:
    """Everything that the configuration says."""

    tables: Mapping[str, PartyFile]
    match: Match
    label: Label
    written: Mapping[str, Any]  # how text files are written, where that was said: settings of [data]
    ignored: Mapping[str, tuple[str, ...]]  # columns by party that no model learns from

    def to_toml(self, out: str) -> str:
        """The file, to be saved as `out`, which is a path as a shell takes it."""
        parts = (
            self._head(out),
            self._data(),
            self._columns(),
            METHOD,
            MODEL,
            self._training(),
            PRIVACY,
            self._next(out),
        )
        return "\n".join(part.strip("\n") + "\n" for part in parts)

    def _head(self, out: str) -> str:
        return f"""
# Written by colonnade init tables. It trains as it is: colonnade train {out}
# Paths are relative to the folder you start from. Every setting and its default: documentation, page "Settings"
"""

    def _data(self) -> str:
        files = {party: str(table.path) for party, table in self.tables.items()}
        held = [
            f"#   {toml_key(party)}: {len(table.frame):,} rows, {len(table.frame.columns):,} columns"
            for party, table in self.tables.items()
        ]
        lines = [
            "[data]",
            "# One table per party. Each becomes numbers on its own; in a real federation it never leaves its owner.",
            *held,
            f"tables = {toml_value(files)}",
            *(
                f"{name} = {toml_value(value)}  # how the text files are written"
                for name, value in self.written.items()
            ),
            "",
            *self._id(),
            "",
            *self._label(),
            "",
            "# Shares of the rows that choose the best round, and that test it once at the end; the others train.",
            '# Also possible: time = "COLUMN" (the latest rows test), groups = "COLUMN" (a household stays together).',
            "split = { validation = 0.1, test = 0.15, seed = 0 }",
        ]
        return "\n".join(lines)

    def _id(self) -> list[str]:
        match, keys = self.match, self.match.keys
        if not keys:
            alone = len(self.tables) == 1
            told = (
                "A single table needs no id." if alone else "You said --same-order: row 1 of all tables is one person."
            )
            return [f'# {told} With an id, tables may be in any order: id = "COLUMN"']
        lines = [f"# The rows of the tables are matched by this; {match.common:,} ids are in all of them."]
        if not match.alike:
            lines.append("# The tables call it differently. CHECK that these columns mean the same people:")
        value = next(iter(keys.values())) if match.alike else dict(keys)
        return [*lines, f"id = {toml_value(value)}"]

    def _label(self) -> list[str]:
        label, task = self.label, self.label.task
        chosen = "the only column that is called as labels are" if label.by_name else "as you said"
        lines = [
            f"# What is to be predicted: a column of {toml_key(label.party)} ({chosen}).",
            f"labels = {toml_value(label.column)}",
            f"task = {toml_value(task.name)}  # binary (yes/no), multiclass, regression (a number) or count",
        ]
        if task.positive:
            names = [str(name) for name in task.classes]
            lines.append(f"classes = {toml_value(names)}  # no and yes: the second one is the positive class")
        return lines

    def _columns(self) -> str:
        """How columns become numbers: what was found worth ignoring, and an example."""
        ignored = {party: names for party, names in self.ignored.items() if names}
        lines = [
            '# How columns become numbers (documentation, page "Tables in, scores out"). Numbers are standardised,',
            "# texts get a column per level, empty values are filled and marked; with statistics of the training rows",
            "# alone.",
            "[data.columns]",
            'rare = 5  # levels of fewer than 5 training rows are one level, "other", and so are unknown ones',
        ]
        for party, names in ignored.items():
            said = {name: {"kind": "ignore"} for name in names}
            lines += [
                "",
                f"[data.columns.{toml_key(party)}]",
                "# Nearly every row has another value, as ids, names and comments have: a model would learn nothing.",
                f"by_name = {toml_value(said)}",
            ]
        first = next(party for party in self.tables if party not in ignored or len(ignored) == len(self.tables))
        example = 'by_name = { zip = { kind = "category" }, note = { kind = "ignore" }, debt = { empty = [-999] } }'
        lines += ["", "# What is different at one party, and at its columns:"]
        lines += [f"# [data.columns.{toml_key(first)}]", f"# {example}"]
        return "\n".join(lines)

    def _training(self) -> str:
        batch = SMALL_BATCH if self.match.common < SMALL else BATCH
        return f"""
[training]
epochs = 60  # how often every training row is visited, at most
schedule = {{ batch = {batch} }}  # rows per round
stopping = {{ patience = 20 }}  # evaluations of the validation rows without a better one
seed = 0
# metric = "log_loss"  # what chooses the round that is kept; unset: auc, accuracy, r2 or poisson_deviance
# decision = {{ decide_by = "f1" }}  # yes/no: chooses the probability above which a yes is said; unset: 0.5
"""

    def _next(self, out: str) -> str:
        files = {party: f"new_{table.path.name}" for party, table in self.tables.items()}
        new = " ".join(f"--tables {shlex.quote(f'{party}={file}')}" for party, file in files.items())
        return f"""
# What next:
#   colonnade check {out}                      what is wrong or doubtful about the tables
#   colonnade train {out} --out runs/first     train, and evaluate on the test rows
#   colonnade report runs/first                       one HTML page about it
#   colonnade predict runs/first {new} --proba
# Is joining worth it? colonnade compare {out} --methods vimadmm_j --alone --central
# Between organisations, each with its own table and machine: colonnade init organisations --help
"""


METHOD = """
[method]
name = "vimadmm_j"  # each party trains a network and uploads scores; only their sum is needed
# Other methods: documentation, page "Methods"
local_steps = 10  # gradient steps of a party per round
optimiser = { kind = "adamw", lr = 0.003 }
"""
MODEL = """
[model]
encoder = "mlp"  # or "linear", "ridge" (no network, solved), "trees" (boosted trees)
hidden = 60
embedding = 30
"""
PRIVACY = """
# Without this section no noise is added: what a party uploads may reveal its columns, and the replies reveal the
# training labels to every party (documentation, page "What is protected"). Noise costs accuracy. Often better, and
# about a person in place of a party: the method local_only with unit = "row" (page "A person's record"). An example:
# [privacy]
# mechanism = "gaussian"
# clip = 0.5
# epsilon = 4  # of each party for training
# labels = { mechanism = "alibi", epsilon = 3 }  # of one row's label
"""
