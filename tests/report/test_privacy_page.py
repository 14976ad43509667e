"""The privacy page of a report: the four questions, from records alone, for every kind of promise."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import DataError, RunError
from colonnade.fit import fit
from colonnade.methods import make_method
from colonnade.privacy import statement
from colonnade.privacy.accounting import exact_epsilon, rdp_epsilon, shift_of
from colonnade.report import compared, tables, words
from colonnade.report.curves import pictures
from colonnade.report.html import render
from colonnade.report.privacy import notes, privacy_page
from colonnade.report.record import grouped, read_records
from colonnade.run import Run
from tests.federations import small
from tests.mechanisms import Noise
from tests.report.test_page import Reader

DP = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0, "evaluation": "simulated"}
LABELS = {"mechanism": "alibi", "epsilon": 2.0}
QUESTIONS = ["Whose privacy", "Against whom", "How much", "What is not covered"]


@pytest.fixture(scope="session")
def promised(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Records of runs with every kind of promise, as they are read from their folders. Look, do not change."""
    folder = tmp_path_factory.mktemp("promised")
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "both": ("vimadmm_j", {**DP, "labels": LABELS}),
        "columns": ("vimadmm_j", {**DP, "epsilon": 4.0, "sigma": None, "neighbours": "replaced"}),
        "labels": ("vimadmm_j", {"labels": LABELS}),
        "alone": ("local_only", {"labels": LABELS}),
        "nothing": ("vimadmm", {}),
        "pooled": ("centralized", {}),
    }
    for name, (method, privacy) in kinds.items():
        made = make_method(method, {"local_steps": 1})
        schedule = {"batch": 20, "participation": 0.5} if name == "columns" else {"batch": 20}
        fit(small(), made, privacy=privacy, out=folder / name, rounds=4, evaluate_every=2, schedule=schedule)
    return {name: read_records([folder / name])[0] for name in kinds}


def text_of(record: dict[str, Any]) -> str:
    return Reader(render([record])).text


def test_the_figures_are_those_of_the_ledger(promised: dict[str, Any]) -> None:
    page, mu = privacy_page(promised["both"]), shift_of(5.0, 4)
    exact, rdp = f"{exact_epsilon(mu, 1e-5):.3f}", f"{rdp_epsilon(mu, 1e-5):.3f}"
    assert page.table is not None
    assert page.table.rows == tuple((f"party_{k}", "4", exact, rdp, "3 evaluate") for k in range(4))
    text = text_of(promised["both"])
    assert f"epsilon {exact} (exact accountant; {rdp} by the paper's RDP bound), delta 1e-05, unit PARTY" in text
    assert "epsilon 2, delta 0, unit LABEL" in text and "Label exposure EPS" in text
    assert not page.unprotected


def test_parties_that_uploaded_less_spent_less(promised: dict[str, Any]) -> None:
    page = privacy_page(promised["columns"])
    assert page.table is not None
    by_releases = sorted((int(row[1]), float(row[2])) for row in page.table.rows)
    assert by_releases[0][0] < by_releases[-1][0] and by_releases[0][1] < by_releases[-1][1] <= 4.0
    assert page.epsilon == pytest.approx(by_releases[-1][1], abs=5e-4)
    assert "neighbours: replaced" in page.table.caption
    assert page.unprotected  # the labels are not


@pytest.mark.parametrize("name", ["both", "columns", "labels", "alone", "nothing"])
def test_the_four_questions_are_answered(name: str, promised: dict[str, Any]) -> None:
    page, text = privacy_page(promised[name]), text_of(promised[name])
    assert [question for question, _ in page.answers] == QUESTIONS
    for question, answers in page.answers:
        assert question in text and all(" ".join(answer.split()) in text for answer in answers)
    assert "colonnade audit RUN" in text and "predictions" in text
    assert ("un-noised and un-counted" in text) == (name in ("both", "columns"))
    assert ("drawn from the run's seed" in text) == (name != "nothing")


def test_runs_without_noise_say_so(promised: dict[str, Any]) -> None:
    assert "no epsilon: uploads left without noise" in privacy_page(promised["labels"]).verdict
    assert privacy_page(promised["nothing"]).verdict.startswith(
        "No noise was used. The uploads may reveal the parties'"
    )
    assert "no party sent anything in training" in privacy_page(promised["alone"]).verdict
    assert "nobody to protect" in privacy_page(promised["pooled"]).verdict
    assert privacy_page(promised["pooled"]).table is None


def test_a_record_in_memory_has_no_figure_it_cannot_know(promised: dict[str, Any]) -> None:
    """Without the ledger's tally: a run without noise is told all the same, one with noise sent to its ledger."""
    for name in ("labels", "nothing", "alone", "pooled"):
        bare = {k: v for k, v in promised[name].items() if k != "tally"}
        assert privacy_page(bare) == privacy_page(promised[name])
    noised = {k: v for k, v in promised["both"].items() if k != "tally"}
    assert "colonnade privacy explain RUN" in privacy_page(noised).verdict
    assert "epsilon 2" not in privacy_page(noised).verdict and privacy_page(noised).unprotected
    assert "keeps nothing of the run's ledger" in text_of(noised)


def test_an_unknown_mechanism_has_no_figure(tmp_path: Path) -> None:
    fit(small(), make_method("vimadmm_j", {"local_steps": 1}), rounds=2, mechanism=Noise(), out=tmp_path / "run")
    page = privacy_page(read_records([tmp_path / "run"])[0])
    assert "no accountant here knows" in page.verdict and page.unprotected


def test_a_missing_library_does_not_cost_the_report(promised: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any) -> float:
        raise DataError("an epsilon needs dp_accounting; install colonnade[privacy]")

    monkeypatch.setattr(statement, "exact_epsilon", missing)
    assert "No epsilon is printed here: an epsilon needs dp_accounting" in text_of(promised["both"])


def test_a_damaged_ledger_is_refused(tmp_path: Path) -> None:
    fit(small(), make_method("local_only"), rounds=1, out=tmp_path / "run")
    (tmp_path / "run" / "ledger.jsonl").write_text('{"owner": 1}\n', encoding="utf-8")
    with pytest.raises(RunError, match="is damaged"):
        read_records([tmp_path / "run"])


@pytest.mark.parametrize("privacy", [{}, DP], ids=["bare", "noised"])
def test_parties_and_privacy_count_the_same_releases(privacy: dict[str, Any], tmp_path: Path) -> None:
    """Both count the ledger, which goes on after run.json was written: predictions and explanations are releases."""
    federation, folder = small(), tmp_path / "run"
    method = make_method("vimadmm_j", {"local_steps": 1})
    fit(federation, method, privacy=privacy, out=folder, rounds=4, evaluate_every=2, schedule={"batch": 20})
    run = Run.load(folder)
    run.explain(federation, uncovered=True)
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    record = read_records([folder])[0]
    shown = privacy_page(record).table
    assert shown is not None
    for party, table, priced in zip(federation.names, tables.parties_table(record).rows, shown.rows, strict=True):
        mine = [line for line in ledger if line["owner"] == party]
        counts = Counter(line["purpose"] for line in mine)
        bare = Counter(line["purpose"] for line in mine if line["mechanism"] == "none")
        assert counts["EXPLAIN"] > 0 and counts["TRAIN"] == 4
        assert table[-1] == ", ".join(f"{n} {purpose.lower()}" for purpose, n in sorted(counts.items()))
        assert priced[-1] == ", ".join(f"{n} {purpose.lower()}" for purpose, n in sorted(bare.items()))
        assert int(priced[1]) == counts["TRAIN"]
        assert privacy or table[-1] == priced[-1]
    told = words.noise(record)
    assert f"the ledger lists {len(ledger)} releases" in told
    assert ("others left unchanged" in told) == bool(privacy)


def test_other_promises_are_not_other_seeds(promised: dict[str, Any]) -> None:
    groups = grouped([promised["labels"], promised["both"]])
    assert len(groups) == 2
    told = dict(notes(groups))
    assert any("epsilon 2, delta 0, unit LABEL" in text and "no epsilon" in text for text in told.values())
    (private,) = [text for text in told.values() if "exact accountant" in text and "trainings on" not in text]
    assert "What the uploads contributed was not measured" in private


def test_the_weakest_seed_counts_for_all(promised: dict[str, Any]) -> None:
    strong = promised["both"]
    weak = json.loads(json.dumps(strong))
    weak["training"]["seed"] = 1
    for party in weak["tally"]:
        party["shift"] *= 2
    (_, said), *others = notes(grouped([strong, weak]))
    assert [name for name, _ in others] == ["all of them"]  # what both trainings cost together
    assert f"epsilon {exact_epsilon(2 * shift_of(5.0, 4), 1e-5):.3f}" in said


class TestNoisyLabels:
    """What protected labels judge is not called an accuracy."""

    def test_nowhere_on_the_page(self, promised: dict[str, Any]) -> None:
        noisy, plain = text_of(promised["labels"]), text_of(promised["nothing"])
        assert "validation accuracy" not in noisy.lower() and "validation accuracy" in plain.lower()
        assert "agreement with noisy validation labels" in noisy and "noisy" not in plain.lower()
        assert "not the true accuracy" in noisy

    def test_in_curves(self, promised: dict[str, Any]) -> None:
        shown = pictures(grouped([promised["labels"]]))
        assert shown[0].caption == "Agreement with noisy validation labels by round."
        assert "noisy-label agreement (%)" in shown[0].drawing.svg()
        assert "alidation accuracy" in pictures(grouped([promised["nothing"]]))[0].caption
        mixed = pictures(grouped([promised["labels"], promised["nothing"]]))[0]
        assert "Of vimadmm_j: scores by noisy validation labels, which are not the true ones" in mixed.caption
        assert "score on validation rows (%)" in mixed.drawing.svg()

    def test_in_comparisons(self, promised: dict[str, Any]) -> None:
        alone = compared.comparison_table(grouped([promised["labels"]]))
        assert words.NOISY_SCORE in alone.columns
        both = compared.comparison_table(grouped([promised["labels"], promised["nothing"]]))
        place = both.columns.index("validation accuracy")
        assert [row[place].endswith("(noisy labels)") for row in both.rows] == [True, False]


def test_the_settings_of_the_promise_are_listed(promised: dict[str, Any]) -> None:
    rows = {name: value for name, value, _ in tables.settings_table(promised["both"]).rows}
    assert rows["privacy.sigma"] == "5*" and rows["privacy.labels.epsilon"] == "2*"
