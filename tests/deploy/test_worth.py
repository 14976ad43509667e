"""A question to candidates between organisations: the simulation's numbers, lies on the wire, ledgers, repetition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from colonnade.align.messages import Bare, Hello, Sender
from colonnade.deploy.policy import Policy
from colonnade.deploy.worth.candidate import Candidate, Told, answer_question
from colonnade.deploy.worth.folder import QUESTIONS, Kept
from colonnade.deploy.worth.label_holder import Answered, Asking, ask_candidates
from colonnade.errors import ColonnadeError, LinkError, Refused, RunError
from colonnade.identity.credentials import Credentials
from colonnade.joining.answer import answer, read_answer
from colonnade.joining.question import Labelled, Question, Sample, ask, draw_sample
from colonnade.privacy.ledger import Ledger
from colonnade.saved import LEDGER
from colonnade.tasks.binary import Binary
from colonnade.wire.messages import COORDINATOR
from colonnade.wire.notice import Notice
from tests.align.conftest import PARTIES, credentials
from tests.align.hub import Hub, Killed, Side
from tests.processes import LONG

__all__ = ["credentials"]  # a fixture
ROWS, ALIGNMENT, NAME = 700, "a" * 64, "trial"
rng = np.random.default_rng(3)
COLUMNS = {name: torch.from_numpy(rng.normal(size=(ROWS, 2))).float() for name in PARTIES}
LABELS = ((COLUMNS["telco"][:, :1] + torch.from_numpy(rng.normal(size=(ROWS, 1)))) > 0).double()
HELD = Labelled(LABELS, Binary(1), torch.arange(ROWS))


def candidate(name: str, **changes: Any) -> Candidate:
    return replace(Candidate(lambda train, rows: COLUMNS[name], ROWS, ALIGNMENT, Policy()), **changes)


@dataclass
class Table:
    """Everything needed to ask and to answer."""

    credentials: Mapping[str, Credentials]
    folder: Path
    hub: Hub = field(default_factory=lambda: Hub((COORDINATOR, *PARTIES)))

    def kept(self, name: str) -> Kept:
        (self.folder / name).mkdir(exist_ok=True)
        return Kept.read(self.folder / name)

    def question(self, kept: Kept, epsilon: float = 1.0) -> Question:
        sample = draw_sample(HELD.rows, 300, 0)
        key = kept.key(HELD, sample, epsilon, PARTIES)
        return ask(NAME, PARTIES, HELD, sample, epsilon, key, kept.ledger)

    def holder(self, epsilon: float = 1.0, patience: float = LONG) -> Side:
        kept = self.kept(COORDINATOR)
        asked = self.question(kept, epsilon)
        kept.write()
        line, who = self.hub.line(COORDINATOR), self.credentials[COORDINATOR]
        return Side(COORDINATOR, lambda: ask_candidates(line, who, NAME, PARTIES, asked, ALIGNMENT, patience))

    def party(self, name: str, dies_after: int | None = None, **changes: Any) -> Side:
        line, who, kept = self.hub.line(name, dies_after), self.credentials[name], self.kept(name)
        return Side(name, lambda: answer_question(line, who, NAME, candidate(name, **changes), kept, LONG))


@pytest.fixture
def table(credentials: Mapping[str, Credentials], tmp_path: Path) -> Table:
    return Table(credentials, tmp_path)


def answered(side: Side) -> Answered:
    assert side.wait().error is None, side.error
    assert isinstance(side.outcome, Answered)
    return side.outcome


def test_the_answers_are_those_of_the_simulation_and_both_ledgers_have_what_left(table: Table) -> None:
    parties = [table.party(name) for name in PARTIES]
    found = answered(table.holder())
    assert found.failed == {}
    asked = table.question(table.kept(COORDINATOR))
    for name, party in zip(PARTIES, parties, strict=True):
        told = party.wait().outcome
        assert isinstance(told, Told), party.error
        same = answer(NAME, name, COLUMNS[name], asked.release.payload, asked.task, Ledger())
        levels = read_answer(same.payload, NAME, name, 300, 1)
        assert torch.equal(found.levels[name], levels)
        assert (told.down, told.up) == (len(asked.release.payload), len(same.payload))
        assert table.kept(name).ledger.holds(same.digest) and len(table.kept(name).ledger) == 1
    assert table.kept(COORDINATOR).ledger.holds(asked.release.digest)


def test_neither_labels_nor_scores_can_be_read_between_the_organisations(table: Table) -> None:
    sides = [table.party(name) for name in PARTIES]
    answered(table.holder())
    for side in sides:
        side.wait()
    asked = table.question(table.kept(COORDINATOR)).release.payload
    for _, notice in table.hub.sent:
        assert asked[-200:] not in notice.payload
        assert ("sealed" in notice.blobs) == (notice.kind in ("QUESTION", "ANSWER"))
        assert ("signature" in notice.facts) == (notice.kind in ("PROPOSE", "JOIN", "STOP"))


def test_asking_again_sends_the_same_noise_and_another_epsilon_adds_up(table: Table) -> None:
    first, again, other = (table.kept(COORDINATOR) for _ in range(3))
    one = table.question(first)
    first.write()
    again = table.kept(COORDINATOR)
    assert table.question(again).release.payload == one.release.payload
    assert again.spent == 1.0 and len(again.ledger) == 1
    other = table.kept(COORDINATOR)
    assert table.question(other, epsilon=0.5).release.payload != one.release.payload
    assert other.spent == 1.5 and len(other.ledger) == 2
    corrected = replace(HELD, values=HELD.values.index_fill(0, torch.tensor([0]), 1 - float(HELD.values[0])))
    key = other.key(corrected, draw_sample(HELD.rows, 300, 0), 1.0, PARTIES)
    assert key not in {int(draw.key, 16) for draw in first.draws}  # the same noise would show what was corrected
    assert other.spent == 2.5
    assert (table.folder / COORDINATOR / QUESTIONS).stat().st_mode & 0o077 == 0


def test_a_damaged_list_of_draws_is_not_taken_for_none(table: Table) -> None:
    kept = table.kept(COORDINATOR)
    table.question(kept)
    kept.write()
    (table.folder / COORDINATOR / QUESTIONS).write_text('[{"epsilon": -1}]')
    with pytest.raises(RunError, match="damaged"):
        table.kept(COORDINATOR)
    assert (table.folder / COORDINATOR / LEDGER).exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"alignment": "b" * 64}, "another alignment"),
        ({"policy": Policy(fewest_rows=5000)}, "fewest_rows"),
        ({"policy": Policy(purposes=())}, "purposes"),
        ({"policy": Policy(label_exposure=("NONE",))}, "label_exposure"),
        ({"policy": Policy(require_mechanism=("gaussian",))}, "require_mechanism"),
        ({"policy": Policy(most_epsilon=1.0)}, "most_epsilon"),
        ({"policy": Policy(require_secure_sum=True)}, "require_secure_sum"),
    ],
)
def test_a_candidate_that_may_not_answer_says_why_and_releases_nothing(
    table: Table, changes: dict[str, Any], said: str
) -> None:
    telco, shop = table.party("telco"), table.party("shop", **changes)
    found = answered(table.holder())
    assert said in found.failed["shop"] and set(found.levels) == {"telco"}
    assert isinstance(shop.wait().error, Refused)
    assert len(table.kept("shop").ledger) == 0
    assert telco.wait().error is None


def test_silence_is_named_and_does_not_cost_the_others_their_answer(table: Table) -> None:
    telco = table.party("telco")
    found = answered(table.holder(patience=6))
    assert set(found.levels) == {"telco"} and "gave no answer for 6 seconds" in found.failed["shop"]
    assert telco.wait().error is None


def test_whoever_only_says_hello_does_not_keep_the_label_holder_waiting(table: Table) -> None:
    line, who = table.hub.line("shop"), table.credentials["shop"]
    sender, telco, holder = Sender(line, who, NAME), table.party("telco"), table.holder(patience=5)
    while holder.thread.is_alive():
        sender.send(COORDINATOR, "HELLO", Hello(session="0" * 32))
        holder.thread.join(0.2)
    assert set(answered(holder).levels) == {"telco"} and "no answer" in answered(holder).failed["shop"]
    telco.wait()


def test_nobody_at_all_is_an_error(table: Table) -> None:
    side = table.holder(patience=0.3).wait()
    assert isinstance(side.error, LinkError) and "telco" in str(side.error) and "shop" in str(side.error)


# -- lies on the wire ---------------------------------------------------------------------------


def test_an_answer_of_another_length_counts_as_none(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate with a program of its own: everything is signed and encrypted as it should be, but for the scores."""

    honest = Sender.encrypt

    def encrypt(self: Sender, to: str, kind: str, facts: Any, body: bytes, cipher: Any) -> None:
        honest(self, to, kind, facts, body[:-1] if (self.line.me, kind) == ("shop", "ANSWER") else body, cipher)

    monkeypatch.setattr(Sender, "encrypt", encrypt)
    telco, shop = table.party("telco"), table.party("shop")
    found = answered(table.holder())
    assert set(found.levels) == {"telco"} and "damaged" in found.failed["shop"]
    for side in (telco, shop):
        side.wait()


@pytest.mark.parametrize("kind", ["JOIN", "ANSWER"])
def test_what_was_changed_on_its_way_counts_as_not_having_come(table: Table, kind: str) -> None:
    def change(to: str, notice: Notice) -> Iterable[Notice]:
        if (notice.sender, notice.kind) != ("shop", kind):
            return (notice,)
        if kind == "JOIN":
            return (replace(notice, facts={**notice.facts, "key": "0" * 64}),)
        sealed = notice.blobs["sealed"]
        return (replace(notice, blobs={"sealed": sealed[:-1] + bytes([sealed[-1] ^ 1])}),)

    table.hub.change = change
    sides = [table.party(name) for name in PARTIES]
    found = answered(table.holder())
    assert set(found.levels) == {"telco"} and "shop" in found.failed
    assert sides[0].wait().error is None


def test_a_question_that_was_changed_is_not_answered(table: Table) -> None:
    def change(to: str, notice: Notice) -> Iterable[Notice]:
        if notice.kind == "PROPOSE" and to == "shop":
            return (replace(notice, facts={**notice.facts, "epsilon": 0.1}),)
        return (notice,)

    table.hub.change = change
    telco, shop = table.party("telco"), table.party("shop")
    found = answered(table.holder(patience=6))
    assert set(found.levels) == {"telco"}
    assert isinstance(shop.wait().error, ColonnadeError) and len(table.kept("shop").ledger) == 0
    telco.wait()


def test_a_candidate_that_was_killed_is_asked_again_and_releases_the_same(table: Table) -> None:
    """Its first process dies when it has written its answer, before that leaves."""
    holder, shop = table.holder(), table.party("shop")
    first = table.party("telco", dies_after=2)  # it says hello and joins
    assert isinstance(first.wait().error, Killed)
    assert len(table.kept("telco").ledger) == 1
    second = table.party("telco")
    assert set(answered(holder).levels) == set(PARTIES)
    assert len(table.kept("telco").ledger) == 1
    assert isinstance(second.wait().outcome, Told) and shop.wait().error is None


def test_words_out_of_turn_are_refused(table: Table) -> None:
    line, who = table.hub.line("shop"), table.credentials["shop"]
    telco = table.party("telco")
    holder = table.holder()
    proposal = line.receive(LONG)
    assert proposal is not None
    sender = Sender(line, who, NAME)
    sender.send(COORDINATOR, "ANSWER", Bare(attempt=proposal.facts["attempt"]), {"sealed": b"x" * 99})
    found = answered(holder)
    assert "not its turn" in found.failed["shop"]
    telco.wait()


def test_a_candidate_answers_one_question(table: Table) -> None:
    """Another one on the same consent, about other rows and labels, is refused; the first may be repeated."""
    shop, line = table.party("shop"), table.hub.line(COORDINATOR)
    first = table.question(table.kept(COORDINATOR))
    asking = Asking(Sender(line, table.credentials[COORDINATOR], NAME), ("shop",), first, ALIGNMENT)
    asking.begin()
    while "shop" not in asking._ciphers:
        heard = line.receive(LONG)
        assert heard is not None
        asking.receive(heard)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    told, judged = len(first.sample.told), len(first.sample.judged)
    sample = Sample(order[:told].sort().values, order[told : told + judged].sort().values)
    second = ask(NAME, ("shop",), HELD, sample, 1.0, 2, Ledger())
    attempt = asking._proposal.attempt
    for question in (first, first, second):
        payload = question.release.payload
        asking._sender.encrypt("shop", "QUESTION", Bare(attempt=attempt), payload, asking._ciphers["shop"])
    answers = set()
    while (heard := line.receive(LONG)) is not None and heard.kind != "REFUSE":
        if heard.kind == "ANSWER":
            answers.add(bytes(asking._sender.decrypted(heard, asking._ciphers["shop"])))
    assert len(answers) == 1
    assert "a second question" in str(shop.wait().error)
