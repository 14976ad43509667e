"""`colonnade explain`: which party contributed what, whether a part of them would do, and what noise does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from colonnade.cli.options import AsJson, DataDir, RunFolder, with_data_dir
from colonnade.cli.screen import Screen
from colonnade.errors import ConfigError, RunError

if TYPE_CHECKING:
    from colonnade.explain.explanation import Explanation, Fallen
    from colonnade.explain.retrain import Again
    from colonnade.federation import Federation
    from colonnade.report.figures import Drawing
    from colonnade.run import Run

FOLDER = "explain"  # of the pictures, in the run's folder
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a setting: noise, draws, permutations, ...", show_default=False
    ),
]
Rows = Annotated[Literal["validation", "test"], typer.Option(help="Rows that judge.")]
Denoise = Annotated[
    str | None,
    typer.Option(metavar="PARTY[=STD]", help="Train again with noise on this party's columns.", show_default=False),
]
Summarise = Annotated[
    str | None,
    typer.Option(
        metavar="50,20", help="Train again with the most and least important per cent of parties.", show_default=False
    ),
]
Before = Annotated[
    Path | None,
    typer.Option(metavar="RUN", help="An earlier, explained run: name who lost weight since.", show_default=False),
]
Pictures = Annotated[bool, typer.Option("--pictures", help="Also show raw columns of image parties (a release).")]
Uncovered = Annotated[
    bool, typer.Option("--uncovered", help="Also a run with noise: what leaves for this has none.")
]  # fmt: skip


def explain(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    run: RunFolder,
    rows: Rows = "validation",
    setting: Setting = None,
    denoise: Denoise = None,
    summarise: Summarise = None,
    before: Before = None,
    pictures: Pictures = False,
    uncovered: Uncovered = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Say what each party contributed to a run, on validation rows; what leaves the parties for it is in the ledger.

    Writes RUN/explain.json, which `colonnade report RUN` shows, and pictures into RUN/explain.

    Example: colonnade explain runs/first --summarise 50,20 --denoise party_7=1
    """
    from colonnade.explain.explanation import Explanation
    from colonnade.run import Run

    screen = Screen(as_json)
    shares = _shares(summarise)
    asked = {"rows": rows, "uncovered": uncovered, "pictures": int(pictures), **_settings(setting)}
    finished = Run.load(run)
    federation = _data(run, finished, data_dir)
    earlier = Explanation.load(before) if before is not None else None
    noisy = _noisy(denoise, federation)
    if (shares or noisy) and asked.get("metric", finished.metric) != finished.metric:
        raise ConfigError(
            f"--summarise and --denoise train again and compare by {finished.score_name}, which judges the run; leave "
            f"metric={asked['metric']} out"
        )
    found = finished.explain(federation, **asked)
    if earlier is not None:
        found.fallen = _fallen(found, earlier)
    if shares or noisy:
        with screen.progress() as bars:
            _train_again(found, finished, federation, shares, noisy, _again(finished, rows, uncovered, bars.watch))
    found.save(run)
    files = _draw(found, run / FOLDER)
    screen.emit({**found.to_json(), "files": files})
    if screen.talks:
        _show(screen, run, found)
        screen.notify(f"{run / 'explain.json'}" + (f", pictures in {run / FOLDER}" if files else ""))


def _settings(given: Sequence[str] | None) -> dict[str, object]:
    from colonnade.config import with_overrides

    tables = with_overrides({"explain": {"tsne": 500}}, [f"explain.{one}" for one in given or ()])
    return dict(tables["explain"])


def _shares(text: str | None) -> list[float]:
    if text is None:
        return []
    try:
        shares = [float(part) / 100 for part in text.split(",")]
    except ValueError:
        shares = [0.0]
    if not all(0 < share < 1 for share in shares):
        raise ConfigError(f"--summarise {text!r}: needed per cents between 0 and 100, e.g. 50,20")
    return shares


def _noisy(text: str | None, federation: Federation) -> tuple[str, float | None] | None:
    if text is None:
        return None
    party, _, std = text.partition("=")
    if party not in federation.names:
        raise ConfigError(f"--denoise {party!r}: no such party; parties: {', '.join(federation.names)}")
    try:
        level = float(std) if std else None
    except ValueError:
        raise ConfigError(f"--denoise {text!r}: needed PARTY or PARTY=STD, e.g. {party}=1") from None
    return party, level


def _data(run: Path, finished: Run, data_dir: Path | None) -> Federation:
    """The data of the run's own configuration, if they are still the same."""
    from colonnade.checkpoint import fingerprint
    from colonnade.cli.resume import read_about
    from colonnade.explain.listen import refuse
    from colonnade.job import load_data
    from colonnade.run import STORE

    refuse(finished)
    if finished.config is None:
        raise RunError(f"{run} was started from Python; explain it there: Run.load({str(run)!r}).explain(federation)")
    federation = load_data(with_data_dir(finished.config.get("data", {"set": "digits"}), data_dir), finished.about)
    if (run / STORE).is_file() and read_about(run)["data"] != fingerprint(federation):
        raise RunError(f"{run} was trained on other data than its configuration finds now; say where with --data-dir")
    return federation


def _again(finished: Run, rows: Literal["validation", "test"], uncovered: bool, watch: Any) -> Again:
    from colonnade.explain.retrain import Again

    return Again(finished, rows, watch, uncovered)


def _train_again(
    found: Explanation,
    finished: Run,
    federation: Federation,
    shares: Sequence[float],
    noisy: tuple[str, float | None] | None,
    again: Again,
) -> None:
    from colonnade.explain.denoise import denoise, rivals
    from colonnade.explain.summary import summarise

    if shares:
        if not found.ranked():
            raise ConfigError(
                "--summarise needs a measure of what parties contribute, and only sizes of weights are there; release "
                "more with --uncovered, or rank by them all the same with --set rank_by=norm"
            )
        found.summary = summarise(again, federation, found.ranked(), shares)
    if noisy is not None:
        party, std = noisy
        methods = rivals(finished.method, found.federation)
        found.denoise = denoise(again, federation, party, norm=found.norm, methods=methods, std=std)


def _fallen(found: Explanation, earlier: Explanation) -> list[Fallen]:
    from colonnade.explain.denoise import fallen

    if found.norm is None or earlier.norm is None or found.parties != earlier.parties:
        raise ConfigError("--before: both runs need norms of the same parties; explain a run of the same federation")
    return [cast("Fallen", asdict(fall)) for fall in fallen(found.parties, earlier.norm, found.norm)]


def _draw(found: Explanation, folder: Path) -> list[str]:
    """Pictures as SVG and PNG; none without the extra `report`."""
    if find_spec("matplotlib") is None:
        return []
    folder.mkdir(exist_ok=True)
    files = []
    for drawing in _drawings(found):
        for kind, content in drawing.files().items():
            path = folder / f"{drawing.name}.{kind}"
            path.write_bytes(content)
            files.append(str(path))
    return files


def _drawings(found: Explanation) -> Iterator[Drawing]:
    from colonnade.report.explain_figures import party_rows, scatter

    shown = [(found.pictures or {}).get(party) for party in found.parties]
    yield party_rows("parties", found.parties, list(_bars(found)), _images(shown) if found.pictures else ())
    if found.tsne:
        titles = [(f"{one['which']}: {one['party']}", one["points"], one["labels"]) for one in found.tsne]
        yield scatter("tsne", titles, found.tsne[0]["names"])


def _bars(found: Explanation) -> Iterator[Any]:
    from colonnade.evaluate.metrics import find_title
    from colonnade.report.explain_figures import BarRow

    noisy = found.denoise
    if found.norm is not None:
        yield BarRow(f"norm: {found.norm_of}", found.norm)
    if found.noise is not None and found.score is not None:
        metric = find_title(found.score_name)
        sign = 1.0 if metric is None else metric.sign()  # drops are of what rises
        left = [found.score - sign * drop for drop in found.noise]
        yield BarRow(f"{found.score_name} with noise on its columns (line: without)", left, line=found.score)
    if found.shapley is not None:
        yield BarRow("Shapley value", found.shapley)
    if noisy is not None and noisy["norm_after"] is not None:
        title = f"norm, trained with noise on {noisy['party']}"
        yield BarRow(title, noisy["norm_after"], marked=found.parties.index(noisy["party"]))


def _images(shown: Sequence[Any]) -> list[Any]:
    """The first row of each party as rows of pixels; colours last, on a scale from 0 to 1."""
    import torch

    images = []
    for rows in shown:
        pixels = None if rows is None else torch.tensor(rows[0])
        if pixels is not None and pixels.dim() == 3:
            pixels = pixels.permute(1, 2, 0)
            pixels = (pixels - pixels.min()) / (pixels.max() - pixels.min()).clamp(min=1e-12)
            pixels = pixels if pixels.shape[2] in (3, 4) else pixels[:, :, 0]
        images.append(None if pixels is None else pixels.tolist())
    return images


def _show(screen: Screen, run: Path, found: Explanation) -> None:
    from colonnade.explain.explanation import MEASURES
    from colonnade.report.tables import Table

    measures = found.measures()
    place = {party: str(n) for n, party in enumerate(found.ranked(), start=1)}
    rows = tuple(
        (party, place.get(party, "-"), *(f"{values[k]:.4f}" for values in measures.values()))
        for k, party in enumerate(found.parties)
    )
    score = "no score" if found.score is None else f"{found.score_name} {found.score:.4f}"
    caption = f"{run}, {found.method}: {score} on {found.count:,} {found.rows} rows"
    screen.table(Table(caption, ("party", "rank", *(MEASURES[name] for name in measures)), rows))
    for line in _told(found):
        screen.notify(line)


def _headline(found: Explanation) -> str:
    """Who contributes most, by the measure that ranks; a size of weights is called just that."""
    from colonnade.explain.explanation import NAMES

    by, ranked = found.ranked_by(), found.ranked()
    if by is None:
        return "nothing here says what each party contributes: the sizes of its weights do not"
    if by == "norm":
        return f"largest weights: {ranked[0]}; smallest: {ranked[-1]}; this does not say who contributes"
    return f"by {NAMES[by]}, {ranked[0]} contributes most and {ranked[-1]} least"


def _told(found: Explanation) -> Iterator[str]:
    from colonnade.explain.explanation import NAMES

    yield _headline(found)
    known = [pair for pair in found.agreement if pair.spearman is not None]
    if known:
        told = "; ".join(f"{NAMES[pair.one]} and {NAMES[pair.other]} {pair.spearman:.2f}" for pair in known)
        yield f"order of the parties by two measures (Spearman; 1: the same, 0: unrelated, -1: reversed): {told}"
    for measure, why in found.unavailable.items():
        yield f"{NAMES.get(measure, measure)}: not available: {why}"
    if found.fallen is not None:
        yield f"lost weight since the earlier run: {_names(found.fallen)}"
    if found.summary is not None:
        for one in found.summary["sets"]:
            yield f"{one['which']} important {100 * one['share']:g} % ({len(one['parties'])}): {_score(one['score'])}"
        yield found.summary["advice"]
    if found.denoise is not None:
        noisy = found.denoise
        for method, scores in noisy["scores"].items():
            by = ", ".join(f"{_score(s)} after {n}" for n, s in zip(noisy["lengths"], scores, strict=True))
            yield f"noise of std {noisy['std']:g} on {noisy['party']}, {method}: {by} rounds"
        yield f"lost weight under noise: {_names(noisy['fallen'])}"
    yield f"{found.releases} messages left the parties for this; the ledger has them under EXPLAIN"
    yield from found.notes


def _names(falls: Sequence[Fallen]) -> str:
    told = [f"{f['party']} (place {f['place_before']}, now {f['place_after']})" for f in falls]
    return ", ".join(told) or "nobody"


def _score(value: float | None) -> str:
    return "no score" if value is None else f"{value:.4f}"
