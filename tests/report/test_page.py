"""The page: self-contained, the same for the same records, escaped, readable by machines that read to people."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import RunError
from colonnade.fit import fit
from colonnade.methods import make_method
from colonnade.report import html as html_module
from colonnade.report.html import render, write_report
from tests.federations import small
from tests.mechanisms import Noise
from tests.report.conftest import METHODS, train

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Reader(HTMLParser):
    """Checks nesting, and keeps what the tests ask about."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], "tags left open"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag in tags]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="session")
def one(trained: dict[tuple[str, int], dict[str, Any]]) -> str:
    return render([trained["vimadmm", 0]])


@pytest.fixture(scope="session")
def several(trained: dict[tuple[str, int], dict[str, Any]]) -> str:
    return render(list(trained.values()))


@pytest.fixture(params=["one", "several"])
def page(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def test_it_asks_the_network_for_nothing(page: str) -> None:
    addresses = set(re.findall(r"https?://[^\s\"'<>)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, never loaded
    reader = Reader(page)
    assert not reader.all("script", "img", "iframe", "object", "embed")
    assert [link["href"] for link in reader.all("link")] == ["data:,"]
    assert set(re.findall(r"url\((.)", page)) <= {"#"}
    assert "@import" not in page


def test_it_is_small(page: str) -> None:
    assert len(page.encode()) < 300_000


def test_the_same_records_give_the_same_bytes(page: str, trained: dict[tuple[str, int], dict[str, Any]]) -> None:
    assert page in (render([trained["vimadmm", 0]]), render(list(trained.values())))


def test_headings_go_down_one_step_at_a_time(page: str) -> None:
    levels = [int(tag[1]) for tag, _ in Reader(page).tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_ids_are_unique_and_references_meet_them(page: str) -> None:
    reader = Reader(page)
    ids = [str(attributes["id"]) for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'(?:xlink:href|href)="#([^"]+)"|url\(#([^)]+)\)', page))
    labelled = {str(a["aria-labelledby"]) for _, a in reader.tags if "aria-labelledby" in a}
    assert {first or second for first, second in wanted} | labelled <= set(ids)


def test_tables_figures_and_language_are_said(page: str) -> None:
    reader = Reader(page)
    assert reader.all("html")[0]["lang"] == "en"
    assert all(heading.get("scope") in ("col", "row") for heading in reader.all("th"))
    assert len(reader.all("caption")) == len(reader.all("table"))
    assert all(image.get("alt") is not None for image in reader.all("img"))
    figures = [a for a in reader.all("div") if a.get("role") == "img"]
    assert len(figures) == len(reader.all("figure")) == len(reader.all("figcaption")) >= 3
    assert all(len(str(figure["aria-label"])) > 40 for figure in figures)
    assert all(svg.get("aria-hidden") == "true" for svg in reader.all("svg"))


def test_one_run_says_what_happened(one: str, trained: dict[tuple[str, int], dict[str, Any]]) -> None:
    record, text = trained["vimadmm", 0], Reader(one).text
    result = record["result"]
    for part in (
        "vimadmm on small",
        "vimadmm trained one model over 4 parties of small (54 training, 18 validation and 18 test rows).",
        f"test accuracy {100 * result['test_score']:.2f} % (95 % interval {100 * result['test_interval'][0]:.1f} to ",
        f'always guessing "{result["baseline_class"]}": {100 * result["baseline_score"]:.1f} %).',
        "It ran 4 of at most 4 rounds (all rounds done)",
        f"the model of round {result['best_round']} was kept",
        "Label exposure FULL: the replies reveal the training labels to every party",
        "No noise was used; the ledger lists",
        "Confusion matrix",
        "party_3",
        "multicast",
        "method.optimiser.lr",
        "weight of the agreement penalty",
        "colonnade train run.toml",
        record["fingerprint"],
    ):
        assert part in text


def test_without_noise_the_page_says_that_there_is_no_epsilon(one: str) -> None:
    """And has no figure: of these runs nothing is known but that their uploads left without noise."""
    text = Reader(one).text
    assert text.count("no epsilon: uploads left without noise") >= 2
    assert (
        "No noise was used. The uploads may reveal the parties' columns, and the replies reveal the training labels to "
        'every party. What to do about it: documentation, page "What is protected".' in text
    )
    assert not re.search(r"epsilon \d", text)
    assert "\N{GREEK SMALL LETTER EPSILON}" not in one


def test_several_runs_are_compared(several: str) -> None:
    reader = Reader(several)
    for method in METHODS:
        assert method in reader.text
    for part in ("4 methods on small", "8 runs", "mean ± standard deviation over seeds", "Bands: from the lowest"):
        assert part in reader.text
    assert reader.text.count("Seed 1:") == len(METHODS)
    assert "fill-opacity: 0.18" in several


def test_a_name_cannot_become_markup(record: dict[str, Any]) -> None:
    evil = "<script>alert('x')</script>"
    record["about"]["federation"] = record["about"]["parties"][0]["name"] = evil
    record["result"]["stop"] = evil
    record["traffic"]["per_party"][evil] = {"up": 1, "down": 1}
    page = render([record])
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_diverged_run_is_warned_about(record: dict[str, Any]) -> None:
    record["result"] |= {
        "diverged": True,
        "stop": "diverged: party 'a' computed a non-finite upload",
        "test_score": None,
    }
    for key in ("confusion", "class_accuracy", "class_accuracy_std"):
        record["result"].pop(key)
    text = Reader(render([record])).text
    assert "Training diverged." in text
    assert "not measured" in text


@pytest.mark.parametrize("task", ["regression", "binary", "multilabel"])
def test_other_tasks(task: str) -> None:
    text = Reader(render([train("vimadmm_j", task=task)])).text
    assert ("Confusion" in text) == (task == "binary")
    assert ("R2" in text) == (task == "regression")
    assert ("test AUC 0." in text and "guessing: 0.50); accuracy" in text) == (task == "binary")


def test_a_record_of_the_first_version_is_reported_as_it_was_judged() -> None:
    record = train("vimadmm_j", task="binary")
    accuracy = record["result"]["test_accuracy"]
    old = ("rounds", "stop", "diverged", "best_round", "seconds")
    record["result"] = {key: record["result"][key] for key in old} | {"validation_score": 0.5, "test_score": accuracy}
    record["about"].pop("positive", None)
    text = Reader(render([record])).text
    assert f"Test accuracy {100 * accuracy:.2f} %." in text and "validation accuracy of 50.00 %" in text
    assert "AUC" not in text and "guessing" not in text


def test_a_run_without_evaluations_has_no_score_curves() -> None:
    run = fit(small(), make_method("local_only"), rounds=2, evaluate_every=0)
    reader = Reader(render([run.record()]))
    assert "curves" not in {heading.get("id") for heading in reader.all("h2")}
    assert "This run was started from Python" in reader.text


def test_noise_is_not_denied() -> None:
    run = fit(small(), make_method("vimadmm_j", {"local_steps": 1}), rounds=2, mechanism=Noise())
    text = Reader(render([run.record()])).text
    assert "No noise was used" not in text
    assert f"Releases passed the mechanism {Noise().event.name}" in text


def test_many_classes_are_told_without_a_matrix(record: dict[str, Any]) -> None:
    classes = 25
    record["result"]["confusion"] = [[3 if i == j else int(j == 0) for j in range(classes)] for i in range(classes)]
    text = Reader(render([record])).text
    assert "Confusion matrix" not in text
    assert "Most frequent mistakes: 1 taken for 0 (1 time)" in text


def test_the_file_appears_whole_or_not_at_all(tmp_path: Path, record: dict[str, Any]) -> None:
    path = write_report([record], tmp_path / "deep" / "er")
    assert path == tmp_path / "deep" / "er" / "report.html"
    assert not list(path.parent.rglob("*.part"))
    del record["history"]
    with pytest.raises(RunError):
        write_report([record], tmp_path / "never" / "x.html")
    assert not (tmp_path / "never").exists()
    with pytest.raises(RunError, match="at least one run"):
        write_report([], tmp_path)


def test_run_report_writes_the_page(tmp_path: Path) -> None:
    run = fit(small(), make_method("local_only"), rounds=2)
    assert run.report(tmp_path).read_text().startswith("<!DOCTYPE html>")


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def palettes() -> list[dict[str, str]]:
    folder = Path(html_module.__file__).parent / "templates"
    css = (folder / "report.css").read_text()
    light, dark = (re.search(r":root \{(.*?)\}", part, re.DOTALL) for part in (css, css[css.index("@media screen") :]))
    assert light is not None
    assert dark is not None
    return [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6})", found[1])) for found in (light, dark)]


def shades() -> list[dict[str, float]]:
    """How deep cells are coloured, in light and in dark."""
    css = (Path(html_module.__file__).parent / "templates" / "report.css").read_text()
    found = re.findall(r"--(depth|wrong-depth): (\d+)%", css)
    return [{name: int(value) / 100 for name, value in pair} for pair in (found[:2], found[2:4])]


@pytest.mark.parametrize("palette", palettes(), ids=["light", "dark"])
def test_colours_can_be_read(palette: dict[str, str]) -> None:
    """WCAG: 4.5 for text, 3 for lines of a figure."""
    for ground in ("page", "card", "note-card", "warn-card"):
        assert contrast(palette["ink"], palette[ground]) >= 7
        assert contrast(palette["ink-soft"], palette[ground]) >= 4.5
        assert contrast(palette["accent"], palette[ground]) >= 4.5  # links
    for number in range(8):
        assert contrast(palette[f"series-{number}"], palette["card"]) >= 3


def mixed(tint: str, share: float, ground: str) -> str:
    """As color-mix(in srgb) does it."""
    pairs = [(int(tint[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)


@pytest.mark.parametrize("place", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_numbers_of_the_confusion_matrix_can_be_read(place: int, share: float) -> None:
    palette, depths = palettes()[place], shades()[place]
    right = mixed(palette["series-0"], share * depths["depth"], palette["card"])
    wrong = mixed(palette["series-1"], share * depths["wrong-depth"] + 0.14, palette["card"])
    assert min(contrast(palette["ink"], right), contrast(palette["ink"], wrong)) >= 4.5
