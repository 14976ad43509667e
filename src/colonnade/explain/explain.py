"""Explain a finished run: ask its parties a few questions, and compute everything else from the answers."""

from __future__ import annotations

import math

from torch import Tensor

from colonnade.errors import ConfigError, DataError
from colonnade.evaluate.judge import in_common
from colonnade.evaluate.metrics import Metric, choose_metric
from colonnade.explain.classes import evidence
from colonnade.explain.close import close_calls
from colonnade.explain.coalitions import Coalitions
from colonnade.explain.explanation import NAMES, Explanation, agreements, mean_and_spread
from colonnade.explain.listen import Listener, refuse
from colonnade.explain.norms import Norms, at_coordinator
from colonnade.explain.scatter import tsne
from colonnade.explain.settings import TEST_NOISE, ExplainSettings, published_noise
from colonnade.explain.shapley import Shapley, exact, sampled
from colonnade.federation import Federation
from colonnade.job import load_data
from colonnade.randomness import permutation
from colonnade.run import Run
from colonnade.tasks import Task

DISAGREE = 0.5  # rank correlation with the measure that ranks under which it is said
FEWER = 4  # parties fewer for exact Shapley values, where a coalition takes a prediction and not an addition
COVER = (
    "the run promises an epsilon, and what leaves for this has no noise and is not covered by it; "
    "set uncovered = true (--uncovered) to release it all the same"
)


def explain(run: Run, federation: Federation | None = None, settings: ExplainSettings | None = None) -> Explanation:
    """What each party contributed to a run.

    Args:
        run: finished, in one process. Its ledger grows by what leaves the parties, also on disk.
        federation: the data it was trained on; None: those of its configuration.
        settings: which rows, how much noise, how many orders.

    Raises:
        ConfigError: parties cannot be told apart (a secure sum, `centralized`), or nothing may leave.
        DataError: these are other data, or there are no such rows.
    """
    settings = settings if settings is not None else ExplainSettings()
    refuse(run)
    metric = choose_metric(run.task, settings.metric or run.metric)
    federation = federation if federation is not None else _own_data(run)
    rows = choose_rows(federation, settings)
    _check_defined(metric, federation, rows, settings)
    covered = run.privacy.evaluates() or settings.uncovered
    before = len(run.ledger)
    listener = Listener.open(run, federation, rows, covered)
    found = Explanation(
        run.id, run.method.name, run.about["federation"], settings.rows, len(rows), metric.title, None,
        list(federation.names), class_names=_kinds(federation.task), rank_by=settings.rank_by,
    )  # fmt: skip
    try:
        _weigh(found, run, listener, covered)
        if covered:
            _listen(found, listener, (federation, rows, metric), settings)
        else:
            found.unavailable |= dict.fromkeys(("noise", "mask", "shapley"), COVER)
    finally:  # whatever left has left, also if something fails later
        run.model.append_ledger(before)
    found.agreement = agreements(found.measures())
    found.releases = len(run.ledger) - before
    found.notes += _notes(run, found)
    return found


def weigh(run: Run, federation: Federation, settings: ExplainSettings) -> list[float] | None:
    """Only the norms, in federation order; None if the model has none. Those of heads at the parties are releases."""
    refuse(run)
    before = len(run.ledger)
    covered = run.privacy.evaluates() or settings.uncovered
    listener = Listener.open(run, federation, federation.split.train[:1], covered)
    found = Explanation(
        run.id,
        run.method.name,
        run.about["federation"],
        settings.rows,
        0,
        run.score_name,
        None,
        list(federation.names),
    )
    try:
        _weigh(found, run, listener, covered)
    finally:
        run.model.append_ledger(before)
    return found.norm


def choose_rows(federation: Federation, settings: ExplainSettings) -> Tensor:
    """The validation or test rows, or some of them."""
    rows: Tensor = getattr(federation.split, settings.rows)
    if not len(rows):
        raise DataError(f"this federation has no {settings.rows} rows to explain on; split some off")
    if settings.most_rows is not None and settings.most_rows < len(rows):
        rows = permutation(rows, settings.seed, "explain rows")[: settings.most_rows]
    return rows


def _check_defined(metric: Metric, federation: Federation, rows: Tensor, settings: ExplainSettings) -> None:
    """Refuse rows on which the metric is undefined, such as an AUC of one class."""
    task, truth = federation.task, federation.labels[rows]
    if math.isnan(metric(task, task.constant(task.shares(truth)).expand(len(rows), -1), truth)):
        raise DataError(
            f"the {len(rows)} {settings.rows} rows to explain on are all of one {in_common(task)}, so {metric.title} "
            "is undefined there; choose other rows with --rows, or split off more"
        )


def _own_data(run: Run) -> Federation:
    if run.config is None:
        raise DataError(
            "this run was started from Python, so its data are not known; pass them: run.explain(federation)"
        )
    return load_data(run.config.get("data", {"set": "digits"}), run.about)


def _weigh(found: Explanation, run: Run, listener: Listener, covered: bool) -> None:
    norms = at_coordinator(run.state, listener.schema.groups)
    heads = {name: any(key.startswith("head.weight") for key in model) for name, model in run.models.items()}
    if norms is None and all(heads.values()):
        if not covered:
            raise ConfigError(f"heads of {run.method.name} live at the parties: {COVER}")
        norms = Norms("head at the party", listener.norms())
    if norms is None:
        without = next((name for name in heads if any(heads.values()) and not heads[name]), None)
        found.unavailable["norm"] = (
            f"the model of {run.method.name} has no weights that belong to one party"
            if without is None
            else f"the local model of {without!r} has no head"
        )
        if not covered:
            raise ConfigError(COVER)
        return
    found.norm_of, found.norm = norms.of, [norms.values[party] for party in found.parties]


def _listen(
    found: Explanation, listener: Listener, asked: tuple[Federation, Tensor, Metric], settings: ExplainSettings
) -> None:
    device, (federation, rows, metric) = listener.schema.device, asked
    labels, weights = federation.labels[rows], None if federation.weights is None else federation.weights[rows]
    state = {k: v.to(device) for k, v in listener.run.state.items()}
    game = Coalitions(
        listener.run.method, state, listener.clean(), listener.schema.parties, listener.places,
        listener.schema.task, metric, labels.to(device), settings.silence, weights,
    )  # fmt: skip
    found.score = game.score(game.whole)
    _perturb(found, game, listener, settings)
    try:
        game.check()
    except ConfigError as error:
        found.unavailable |= dict.fromkeys(("mask", "shapley"), str(error))
    else:
        found.silence, found.additive = game.resolved, game.additive
        _mask(found, game)
        shapley = _shapley(game, settings)
        if shapley is not None:
            found.shapley, found.shapley_orders = shapley.values.tolist(), shapley.orders
            found.shapley_error = None if shapley.errors is None else shapley.errors.tolist()
            found.notes += close_calls(game, shapley.values)
        else:
            found.unavailable["shapley"] = "not asked for (shapley = 'none')"
    if settings.tsne:
        ends = (("most important", found.ranked()[0]), ("least important", found.ranked()[-1]))  # noise ranks at least
        found.tsne = [tsne(game, party, which, settings) for which, party in ends]
    if settings.pictures:
        found.pictures = {party: shown.tolist() for party, shown in listener.pictures(settings.pictures).items()}


def _perturb(found: Explanation, game: Coalitions, listener: Listener, settings: ExplainSettings) -> None:
    """Noise on one party's columns at a time: the others' answers are those they gave before."""
    if (party := listener.tokens()) is not None:
        found.unavailable["noise"] = f"the columns of {party!r} are tokens: no noise can be added to them"
        return
    if getattr(listener.run.method, "reads_bins", False):
        found.unavailable["noise"] = "columns are cut into bins: no noise can be added to the number of a bin"
        return
    std = settings.noise if settings.noise is not None else published_noise(found.federation, TEST_NOISE)
    whole, drops = game.gain(game.whole), []
    for draw in range(settings.draws):
        noisy = listener.noisy(std, settings.seed, draw)
        drops.append([whole - game.gain(game.swapped(p, noisy)) for p in range(len(game.parties))])
    found.noise_std, found.noise_draws = std, settings.draws
    found.noise, found.noise_spread = mean_and_spread(drops)


def _mask(found: Explanation, game: Coalitions) -> None:
    whole, by_class = game.gain(game.whole), game.task.by_kind(game.whole, game.truth)
    found.mask, found.class_drop = [], []
    for party in range(len(game.parties)):
        left = game.without(party)
        found.mask.append(whole - game.gain(left))
        after = game.task.by_kind(left, game.truth)
        found.class_drop.append([b - a for b, a in zip(by_class, after, strict=True)])
    if game.additive and game.task.exclusive:
        found.class_evidence = evidence(game.terms, game.truth)


def _shapley(game: Coalitions, settings: ExplainSettings) -> Shapley | None:
    parties, way = len(game.parties), settings.shapley
    if way == "none":
        return None
    few = parties <= settings.exact_up_to - (0 if game.additive else FEWER)
    if way == "exact" and parties > 20:
        raise ConfigError(f"exact Shapley values over {parties} parties need 2^{parties} predictions; use 'sampled'")
    if way == "exact" or (way == "auto" and few):
        return exact(game.walk(), parties)
    return sampled(game.walk, parties, settings.permutations, settings.seed)


def _kinds(task: Task) -> list[str]:
    """What the drops by kind are about: classes, labels, or numbers."""
    return [str(name) for name in task.classes or range(task.outputs)]


def _notes(run: Run, found: Explanation) -> list[str]:
    notes = []
    if found.rows == "test":
        notes.append("made on test rows, as asked: they are no longer unseen by whoever acts on this")
    if run.privacy.noised and found.releases:
        notes.append(f"{found.releases} messages left the parties without noise; the run's epsilon does not cover them")
    notes += disagreements(found)
    if found.norm is not None and run.model_settings.head.layers > 1:
        notes.append("heads with several layers: the norm is over all their weights, which the paper does not look at")
    return notes


def disagreements(found: Explanation) -> list[str]:
    """Which measures tell another story than the one that ranks: another order, or their first is in its lower half."""
    by = found.ranked_by()
    if by is None:
        return []
    ranked, told = found.ranked(), []
    for other in found.measures():
        if other == by:
            continue
        alike, first = found.agree(by, other).spearman, found.order(other)[0]
        place = ranked.index(first) + 1
        if alike is not None and (alike < DISAGREE or 2 * place > len(ranked) + 1):
            why = "; sizes of weights depend on first weights and regularisation, and are no contribution"
            told.append(
                f"{NAMES[other]} and {NAMES[by]} rank the parties differently (Spearman {alike:.2f}): by "
                f"{NAMES[other]} {first} is first, by {NAMES[by]} it is place {place} of {len(ranked)}"
                + (why if "norm" in (other, by) else "")
            )
    return told
