"""Everything that organisations need for a first run together: one folder for each, ready to copy.

    README.txt           the commands, in order
    server/              nats.conf and the server's certificate
    bank_a/              party.toml, policy.toml, coordinator.toml at the label holder, certs/ with its own keys only
    telco/               party.toml, policy.toml, certs/
    authority/           the key that made the certificates; it goes to nobody

For a trial: one place makes everybody's keys. In production each organisation makes its own key and has it certified.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from colonnade.deploy.server import server_config
from colonnade.deploy.settings import read_coordinator, read_party
from colonnade.errors import ConfigError
from colonnade.identity.certificates import HERE, make_trial
from colonnade.identity.names import COORDINATOR, RESERVED, check_parties
from colonnade.methods import find_method

AUTHORITY, SERVER, README = "authority", "server", "README.txt"
LABELS, ROUNDS = "labels.csv", 100


@dataclass(frozen=True)
class Outline:
    """Who trains what together."""

    run: str
    parties: tuple[str, ...]
    holder: str  # the organisation with the labels; perhaps one of the parties
    label: str
    ids: Mapping[str, str]  # by organisation, the id column of its tables
    tables: Mapping[str, str] = field(default_factory=dict)  # by party; <name>.csv where it is not said
    labels: str = LABELS
    host: str = "localhost"
    port: int = 4222
    method: str = "vimadmm"
    rounds: int | None = None  # None: what is usual
    days: int = 30

    @property
    def organisations(self) -> tuple[str, ...]:
        """Everybody who gets a folder."""
        return tuple(dict.fromkeys((self.holder, *self.parties)))

    @property
    def others(self) -> tuple[str, ...]:
        """The parties that are not of the label holder's organisation: with them rows are aligned."""
        return tuple(party for party in self.parties if party != self.holder)

    def table(self, party: str) -> str:
        """The file of a party's columns."""
        return self.tables.get(party, f"{party}.csv")

    def check(self) -> None:
        """Refuse what cannot be: `ConfigError` about the first that is wrong."""
        check_parties(self.organisations)
        for taken in (AUTHORITY, *RESERVED):
            if taken in {name.lower() for name in self.organisations}:
                raise ConfigError(f"organisation {taken!r}: this name stands for another folder; choose another")
        if not self.others:
            raise ConfigError(f"{self.holder!r} holds the labels and is the only party; name another with --party")
        for name in self.tables:
            if name not in self.parties:
                raise ConfigError(f"--table {name}=...: there is no such party; there are {', '.join(self.parties)}")


def write_organisations(folder: Path, outline: Outline) -> list[str]:
    """Write all folders, whole or not at all; the names of what is in it.

    Raises:
        ConfigError: the folder is there already or cannot be written, or something in the outline cannot be.
    """
    outline.check()
    if folder.exists():
        raise ConfigError(f"{str(folder)!r} is there already, perhaps with keys in use; choose another folder")
    try:
        folder.absolute().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.absolute().parent) as beside:
            new = Path(beside) / "new"
            new.mkdir(mode=0o700)
            _fill(new, outline)
            new.rename(folder)
    except OSError as error:
        raise ConfigError(f"{str(folder)!r} cannot be written: {error.strerror}; choose another folder") from None
    return sorted(path.name for path in folder.iterdir())


def _fill(new: Path, outline: Outline) -> None:
    made = new / AUTHORITY
    hosts = HERE if outline.host in HERE else (outline.host,)
    make_trial(made, outline.parties, hosts, outline.days)
    _place_keys(made, new / SERVER, SERVER)
    listen = "127.0.0.1" if outline.host in HERE else "0.0.0.0"
    store, certs = Path("nats-store"), Path("certs")  # as seen from its folder
    config = server_config(outline.parties, port=outline.port, host=listen, store_dir=store, certificates=certs)
    (new / SERVER / "nats.conf").write_text(config, encoding="utf-8")
    for name in outline.organisations:
        here = new / name
        here.mkdir(mode=0o700)
        if name in outline.parties:
            _place_keys(made, here, name)
            (here / "party.toml").write_text(_party_toml(outline, name), encoding="utf-8")
            (here / "policy.toml").write_text(_policy_toml(outline), encoding="utf-8")
            read_party(here / "party.toml").credentials()
        if name == outline.holder:
            _place_keys(made, here, COORDINATOR)
            (here / "coordinator.toml").write_text(_coordinator_toml(outline), encoding="utf-8")
            read_coordinator(here / "coordinator.toml").credentials()
        (here / README).write_text(commands_of(outline, name), encoding="utf-8")
    (new / SERVER / README).write_text(commands_of(outline, SERVER), encoding="utf-8")
    (new / README).write_text(commands_of(outline), encoding="utf-8")


def _place_keys(made: Path, folder: Path, name: str) -> None:
    """A certificate and its key, and that of the authority; the key is nowhere else afterwards."""
    certs = folder / "certs"
    certs.mkdir(parents=True, mode=0o700, exist_ok=True)
    shutil.copy(made / "ca.crt", certs / "ca.crt")
    for end in ("crt", "key"):
        shutil.move(made / f"{name}.{end}", certs / f"{name}.{end}")


# -- files --------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _connection(outline: Outline, name: str) -> str:
    return f"""
[connection]
server = "tls://{outline.host}:{outline.port}"
authority = "certs/ca.crt"
certificate = "certs/{name}.crt"
key = "certs/{name}.key"
"""


def _party_toml(outline: Outline, name: str) -> str:
    why = "left out where the table has it: a party learns from every column"
    label = f"label = {_quoted(outline.label)}  # {why}\n" if name == outline.holder else ""
    return f"""\
# {name}: who this is, what it holds, and how it gets to the server. All settings: documentation, page "Settings"
[party]
name = "{name}"
table = {_quoted(outline.table(name))}
id = {_quoted(outline.ids[name])}
{label}policy = "policy.toml"
{_connection(outline, name)}"""


def _policy_toml(outline: Outline) -> str:
    return f"""\
# What this organisation allows, whatever is proposed. All rules: documentation, page "Separate organisations"
methods = [{_quoted(outline.method)}]
most_rounds = {outline.rounds or ROUNDS}
alignments_per_day = 4             # each tells the label holder which of its ids are here; 0: a person starts each
# fewest_rows = 100                # small sets expose people
# most_rows_per_prediction = 1000
# require_mechanism = ["gaussian"] # only with noise before every upload
"""


def _coordinator_toml(outline: Outline) -> str:
    own = f"own = [{_quoted(outline.holder)}]{' ' * 12}# its table has every id of the labels: nothing to align\n"
    return f"""\
# {outline.holder} as the label holder: the run, its parties, the labels, and what to train.
[coordinator]
run = {_quoted(outline.run)}
parties = [{", ".join(map(_quoted, outline.parties))}]
{own if outline.holder in outline.parties else ""}table = {_quoted(outline.labels)}
id = {_quoted(outline.ids[outline.holder])}
label = {_quoted(outline.label)}             # where it is empty, it is to be predicted
{_connection(outline, COORDINATOR)}
[method]
name = {_quoted(outline.method)}

{_training(outline)}[absence]
then = "wait"                # for a party that does not answer; or "continue" without it, or "stop"

# Without a [privacy] section no noise is added to what leaves: documentation, page "What is protected"
"""


def _training(outline: Outline) -> str:
    """How long it trains; nothing, where nobody said it and the method knows better."""
    kind = find_method(outline.method)
    if outline.rounds is None and (getattr(kind, "once", False) or hasattr(kind, "usual")):
        return ""
    return f"[training]\nrounds = {outline.rounds or ROUNDS}\n\n"


# -- README.txt ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What everybody does before anybody goes on."""

    title: str
    typed: Sequence[tuple[str, str]]  # folder and command
    stays: bool = False  # in a terminal of its own, which is left open

    def text(self, number: int, folder: str) -> str:
        """With the commands of one folder, or of all ("")."""
        mine = [(where, command) for where, command in self.typed if folder in ("", where)]
        elsewhere = f" (In {', '.join(dict.fromkeys(where for where, _ in self.typed))}.)" if self.typed else ""
        how = (" Leave it running, in a terminal of its own." if self.stays else "") if mine else elsewhere
        lines = [f"{number}. {self.title}{how}", *(f"   in {where}$ {command}" for where, command in mine)]
        return "\n".join(lines) + "\n"


def steps(outline: Outline) -> list[Step]:
    """The way to a trained model."""
    holder, everybody = outline.holder, (*outline.organisations, SERVER)
    verify = "colonnade ledger verify"
    tables = [f"{outline.table(party)} in {party}/" for party in outline.parties]
    put = f"Put the tables there: {', '.join(tables)}, {outline.labels} in {holder}/."
    wheel = f"colonnade-{metadata.version('colonnade')}-py3-none-any.whl"
    colonnade = [(name, f'pip install "./{wheel}[all]"') for name in everybody if name != SERVER]
    return [
        Step("Copy each folder to its organisation, over a way you trust. Keep authority/ to yourself.", ()),
        Step(put, ()),
        Step(
            f"Install: copy {wheel}, which `make dist` builds in the sources, into each folder. "
            "The server needs nats-server 2.9 or later (apt-get install nats-server).", colonnade,
        ),
        Step("Start the server.", [(SERVER, "nats-server -c nats.conf")], stays=True),
        Step(
            "Take part, in this and later runs.",
            [(name, "colonnade serve party.toml") for name in outline.parties], stays=True,
        ),
        Step("Find the rows that all share.", [(holder, "colonnade align coordinator.toml")]),
        Step("Train.", [(holder, "colonnade coordinator coordinator.toml")]),
        Step("Look at it.", [(holder, "colonnade report run")]),
        Step(
            "Check what left, at every organisation.",
            [
                *((name, f"{verify} party/{outline.run} --authority certs/ca.crt") for name in outline.parties),
                (holder, f"{verify} run --authority certs/ca.crt"),
            ],
        ),
    ]  # fmt: skip


def commands_of(outline: Outline, folder: str = "") -> str:
    """README.txt: all steps, with everybody's commands or those of one folder."""
    whose = "Everybody's commands" if not folder else f"The commands of {folder}"
    ids = ", ".join(f"{outline.ids[name]} in {name}/" for name in outline.organisations)
    head = f"""\
{outline.run}: {", ".join(outline.parties)} train one model together; {outline.holder} has the labels.

{whose}, in order. "in X$" is typed in the folder X, on the machine of X. The commands of one step may be
typed in any order; the next step begins when they have ended, or run, where it says so. Each table has an id column
({ids}), and {outline.labels} also {outline.label}.

"""
    tail = f"""
The certificates are valid for {outline.days} days, and for trials: one place made everybody's keys. In production each
organisation makes its own key and has it certified, under the same name. Any process may be stopped or killed and
started again with the same command. More: documentation, page "Separate organisations"
"""
    return head + "\n".join(step.text(number, folder) for number, step in enumerate(steps(outline), 1)) + tail
