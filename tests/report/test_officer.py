"""The page for a data-protection officer: figures of the ledger, in plain words, in one file."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colonnade import Run, fit
from colonnade.cli.privacy_page import source_of
from colonnade.errors import ConfigError, RunError
from colonnade.methods import make_method
from colonnade.part import Part
from colonnade.privacy.accounting import exact_epsilon, shift_of
from colonnade.report.officer import page, verdict, write_officer_page
from colonnade.report.officer_source import Source, of_party, of_run
from tests.cli.conftest import SMALL, Call, cli, config
from tests.federations import small
from tests.report.test_offline import fetched
from tests.report.test_page import Reader

__all__ = ["cli", "config"]  # fixtures
DP: dict[str, Any] = {"mechanism": "gaussian", "clip": 1.0, "sigma": 5.0, "evaluation": "simulated"}
LABELS = {"labels": {"mechanism": "alibi", "epsilon": 2.0}}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "noise": ("vimadmm_j", DP),
    "sealed": ("vimadmm_j", {**DP, "evaluation": "none", "neighbours": "replaced", **LABELS}),
    "little": ("vimadmm_j", {**DP, "sigma": 0.05}),
    "sum": ("vimadmm_j", {"secure_sum": {"use": True}}),
    "bare": ("vimadmm", {}),
    "alone": ("local_only", {}),
    "counts": ("vfl_pbm", {}),
}
ONCE: dict[str, Any] = {"guest": "party_0", "folds": 2, "local_steps": 2}
EPS: dict[str, Any] = {"labels": {"mechanism": "randomised_response", "epsilon": 1.0}}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of every kind of promise. Look, do not change."""
    folder = tmp_path_factory.mktemp("officer")
    for name, (method, privacy) in KINDS.items():
        settings = {"rounds": 4, "evaluate_every": 2, "schedule": {"batch": 20}, "progress": False}
        fit(small(), make_method(method, {}), privacy=privacy, out=folder / name, **settings)
    return folder


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one message with private labels, and a party of the label holder's own. Look, do not change."""
    folder = tmp_path_factory.mktemp("once") / "run"
    fit(small(task="binary"), make_method("one_message", ONCE), privacy=EPS, out=folder, progress=False)
    return folder


def told(runs: Path, kind: str, party: str = "party_1") -> str:
    return " ".join(verdict(of_run(runs / kind, party)))


def test_noise_in_plain_words_with_all_that_belongs_to_the_figure(runs: Path) -> None:
    text, epsilon = told(runs, "noise"), exact_epsilon(shift_of(5.0, 4), 1e-5)
    assert text.startswith("Noise bounds what party_1's messages in training reveal about party_1 as a whole; its ")
    assert "In training 4 messages with numbers computed from it left, with noise." in text
    facts = "delta 1e-05, unit PARTY, compared with the same run without this party's data, exact accountant, training"
    assert f"(epsilon {epsilon:.3f}: {facts} only)" in text and "not about a single person" in text
    assert f"at most {2.718281828**epsilon:,.1f}-fold" in text
    assert re.search(r"Besides, \d messages for evaluation left without noise", text)
    assert "lets party_1 read the labels of all training rows" in text


def test_every_kind_of_promise(runs: Path) -> None:
    sealed = told(runs, "sealed")
    assert "as a whole." in sealed.split(" Between")[0] and "holds these data and not others" in sealed
    assert "without noise" not in sealed and "is made from noisy labels" in sealed
    assert told(runs, "little").startswith("party_1's messages in training have noise, but so little that it promises")
    assert told(runs, "bare").startswith("Nothing bounds what party_1's messages reveal about the people in its table.")
    assert told(runs, "alone").startswith("Nothing computed from party_1's table leaves in training; messages outside")
    assert "RDP accountant" in told(runs, "counts") or "next to nothing" in told(runs, "counts")
    assert "reads the sum of all parties' messages, not party_1's alone" in str(page(of_run(runs / "sum", "party_1")))
    for kind in KINDS:  # no epsilon anywhere without its unit
        for text in re.findall(r"epsilon [\d.]+[^.]*", told(runs, kind)):
            assert "unit" in text or "delta" in text, text


def test_the_label_holder_s_page(runs: Path) -> None:
    assert "nothing protects the labels" in told(runs, "noise", "coordinator")
    flows = of_run(runs / "bare", "coordinator").flows  # vimadmm sends each party its own heads
    assert {(f.to, f.labels) for f in flows if f.purpose == "TRAIN"} >= {("*", True), ("single parties", True)}
    noisy = told(runs, "sealed", "coordinator")
    assert "(epsilon 2: delta 0, unit LABEL, one row's whole label replaced, noise drawn once)" in noisy


class TestTheLabelHoldersOwnParty:
    """It gets true labels, and with trees on top it shows its columns."""

    def test_true_labels_are_not_called_noisy(self, once: Path) -> None:
        text = " ".join(verdict(of_run(once, "coordinator")))
        assert text.startswith("3 messages computed from labels left, made from noisy labels (epsilon 1: ")
        assert "Besides, 1 message with the true labels left for party_0, which is named as the label" in text
        assert "to party_0, which is named as the label holder's own party, are the true labels" in " ".join(
            verdict(of_run(once, "party_0"))
        )
        assert "What comes back to party_1 is made from noisy labels." in verdict(of_run(once, "party_1"))

    def test_nobody_gets_numbers_made_of_messages(self, once: Path) -> None:
        texts = [str(page(of_run(once, who))) for who in ("coordinator", "party_1")]
        assert "labels, and no numbers that are computed from messages" in texts[1]
        assert not any("all uploads" in text or "Replies of the label holder" in text for text in texts)

    def test_columns_that_are_shown_do_not_stay(self, once: Path) -> None:
        source = of_run(once, "party_0")
        method = make_method("one_message", {**ONCE, "stack": "trees"})
        shown = replace(source, method=method, origin="party")
        assert "Not all of party_0's table stays where it is: the label holder gets all of its columns." in verdict(
            shown
        )
        assert "all of its columns, as they are: they are in it" in str(page(shown))
        assert (
            "Between organisations not all of party_0's table stays where it is: the label holder gets all"
            in " ".join(verdict(replace(shown, origin="simulation")))
        )
        assert "party_1's table stays where it is." in verdict(replace(shown, party="party_1"))


def test_sizes_are_those_of_the_ledger_in_the_numbers_that_were_sent(tmp_path: Path) -> None:
    """Not four bytes for each number, where one was sent."""
    settings: dict[str, Any] = {"rounds": 2, "wire": {"numbers": "int8"}, "progress": False}
    run = fit(small(), make_method("vimadmm_j", {}), out=tmp_path / "run", **settings)
    for who in ("party_1", "coordinator"):
        flows = {(f.purpose, f.to): f for f in of_run(tmp_path / "run", who).flows}
        entries = [e for e in run.ledger if e.owner == who and e.purpose.value == "EVALUATE"]
        sent = [f for (purpose, _), f in flows.items() if purpose == "EVALUATE"]
        assert sum(f.bytes or 0 for f in sent) == sum(e.size or 0 for e in entries) and all(f.counted for f in sent)


def test_what_leaves_is_what_the_ledger_and_the_traffic_have(runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(runs / "noise", tmp_path / "run")
    run, source = Run.load(folder), of_run(folder, "party_2")
    counts = {(f.purpose, bool(f.noise)): f.messages for f in source.flows}
    mine = [r for r in run.ledger if r.owner == "party_2"]
    looks = sum(r.purpose.value == "EVALUATE" for r in mine)
    assert counts == {("TRAIN", True): 4, ("EVALUATE", False): looks} and len(mine) == 4 + looks
    assert source.flows[0].bytes == run.traffic.per_party()["party_2"]["up"]
    assert source.down == run.traffic.per_party()["party_2"]["down"] and source.per_row == run.task.outputs
    run.predict(small().select(small().split.test[:3]))
    later = {f.purpose: f.messages for f in of_run(folder, "party_2").flows}
    assert later["PREDICT"] == 1  # the ledger goes on


def test_the_page_is_one_file_that_loads_nothing_and_can_be_filled_in(runs: Path, tmp_path: Path) -> None:
    file = write_officer_page(of_run(runs / "noise", "party_1"), tmp_path / "deep" / "page.html")
    text = file.read_text()
    reader = Reader(text)
    assert fetched(text) == [] and "default-src 'none'" in text and "@page" in text
    order = [reader.text.index(head) for head in ("In short", "What leaves, to whom", "Who can see it", "To fill in")]
    assert order == sorted(order)
    assert text.count("<td></td>") >= 8 and "Data-protection officer" in reader.text
    assert "What the uploads contributed was not measured" in reader.text
    assert of_run(runs / "noise", "party_1").ledger in reader.text  # which file the figures are from


def test_names_are_escaped(runs: Path, tmp_path: Path) -> None:
    source = of_run(runs / "bare", "party_1")
    strange = Source(**{**vars(source), "party": "<b>x</b>"})
    assert "<b>x" not in write_officer_page(strange, tmp_path / "page.html").read_text()


def test_before_training(cli: Call, config: Path) -> None:
    config.write_text(SMALL + '[privacy]\nmechanism = "gaussian"\nclip = 1.0\nepsilon = 2.0\n')
    plan = source_of(config, "party_1", None, None)
    assert [(f.purpose, f.messages) for f in plan.flows] == [("TRAIN", 6)] and plan.origin == "plan"
    done = cli("train", config, "--out", "run", "--no-compare")
    assert done.code == 0
    after = of_run(Path("run"), "party_1")
    assert plan.spent is not None and after.spent is not None
    assert plan.spent.exact == pytest.approx(after.spent.exact)
    assert plan.flows[0].bytes == pytest.approx(after.flows[0].bytes, rel=0.02)
    assert "would leave" in " ".join(verdict(plan))
    shown = cli("privacy", "page", config, "--party", "party_2", "--out", "plan.html", "--json")
    assert shown.json["from"] == "plan" and Path("plan.html").is_file()
    assert cli("privacy", "page", "run", "--party", "party_2").out.splitlines()[-1] == "privacy-party_2.html"


def test_what_is_refused(runs: Path, config: Path, tmp_path: Path, cli: Call) -> None:
    with pytest.raises(RunError, match=r"no party 'telco'; there are party_0, .* and coordinator"):
        of_run(runs / "noise", "telco")
    with pytest.raises(ConfigError, match="whose page"):
        source_of(runs / "noise", None, None, None)
    with pytest.raises(ConfigError, match="before training there is a page for each party only"):
        source_of(config, "coordinator", None, None)
    with pytest.raises(ConfigError, match="are for a configuration file"):
        source_of(runs / "noise", "party_1", ["training.rounds=2"], None)
    Run.load(runs / "bare").model.part("party_1").save(tmp_path / "part")
    assert Part.load(tmp_path / "part").party == "party_1"
    with pytest.raises(RunError, match="without what it released"):
        of_party(tmp_path / "part")
    assert "ends in .html" in cli("privacy", "page", runs / "noise", "--party", "party_1", "--out", "page").err


def test_a_large_delta_bounds_nothing_on_the_page(tmp_path: Path) -> None:
    loose = {**DP, "delta": 0.3, "evaluation": "none"}
    fit(small(), make_method("vimadmm_j", {}), privacy=loose, rounds=2, out=tmp_path / "loose", progress=False)
    source = of_run(tmp_path / "loose", "party_1")
    assert source.spent is not None and source.spent.exact < 1
    assert "promises next to nothing" in " ".join(verdict(source)) and page(source)["warns"]
    fit(small(), make_method("local_only", {}), privacy={**ROWS, "delta": 0.3}, model={"encoder": "tanh"}, rounds=2,
        out=tmp_path / "rows", progress=False)  # fmt: skip
    assert "promises next to nothing" in " ".join(verdict(of_run(tmp_path / "rows", "party_1")))


ROWS: dict[str, Any] = {"unit": "row", "epsilon": 4.0}


def test_parties_that_train_at_home_hide_rows_and_send_nothing_in_training(tmp_path: Path) -> None:
    """Unit ROW: the figure is about each row at all parties, not about a party; nothing left that noise could be on."""
    method = make_method("local_only", {})
    fit(small(), method, privacy=ROWS, model={"encoder": "tanh"}, rounds=4, out=tmp_path / "rows", progress=False)
    source = of_run(tmp_path / "rows", "party_1")
    text, spent = " ".join(verdict(source)), source.spent
    assert text.startswith("Noise bounds what party_1's model, and all that it ever says, reveals about any single row")
    assert spent is not None and f"(epsilon {spent.epsilon:.3f}: delta 1e-05, unit ROW, compared with the same" in text
    assert "PLD accountant" in text and "Nothing about a training row leaves in training" in text
    assert "PARTY" not in text and "exact accountant" not in text and "took part" not in text
    assert {flow.purpose for flow in source.flows} == {"EVALUATE"}
    whole = str(page(source))
    assert "A person with several rows" in whole and "figures are about an organisation as a whole" not in whole
    assert "They get labels, and no numbers that are computed from messages" in whole
    assert source.uploads == ""  # there is no signal of uploads to remove


def test_a_plan_of_training_at_home_has_the_figure_of_rows(config: Path, cli: Call) -> None:
    config.write_text(
        SMALL.replace('name = "vimadmm"\nlocal_steps = 2', 'name = "local_only"')
        + '[privacy]\nunit = "row"\nepsilon = 4.0\n'
    )
    plan = source_of(config, "party_1", ["model.encoder=tanh"], None)
    assert plan.spent is not None and 3.9 < plan.spent.epsilon <= 4.0
    assert "unit ROW" in " ".join(verdict(plan))
