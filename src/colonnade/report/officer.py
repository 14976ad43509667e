"""A page for a data-protection officer: what leaves one party, to whom, how often, and what bounds what it reveals.

Plain language, the verdict first, one file that loads nothing and prints on paper. Figures are those of the ledger and
the statement (`privacy/statement.py`); whatever only people know (contacts, legal basis, periods) is left to fill in.
"""

from __future__ import annotations

import math
from pathlib import Path

from colonnade.privacy.events import LabelExposure
from colonnade.privacy.spent import Spent
from colonnade.privacy.statement import LABELS, WORLDS
from colonnade.report import officer_rows, words
from colonnade.report.html import render_page, write_file
from colonnade.report.officer_source import Flow, Source
from colonnade.report.tables import Table

ORIGINS = {
    "simulation": "from the record of a simulation",
    "label holder": "from the label holder's record of a run between organisations",
    "party": "from the party's own ledger of a run between organisations",
    "plan": "before training, from the configuration: what would leave",
}
WHAT = {
    "TRAIN": "numbers that {0}'s model computes from its columns, about the rows of a training round",
    "EVALUATE": "numbers that {0}'s model computes from its columns, about validation and test rows, to measure it",
    "PREDICT": "numbers that {0}'s model computes from its columns, about rows whose prediction is asked for",
    "EXPLAIN": "answers about what {0} contributes to predictions",
}
TOLD = {"TRAIN": "training", "EVALUATE": "evaluation", "PREDICT": "prediction", "EXPLAIN": "explanation"}
GUEST = "which is named as the label holder's own party"
REVEALS = "values of columns may be estimated from it, and who is in the table recognised"
LITTLE = "what little the noise lets through; the bound says how much"
BLANKS = (
    "Organisation (controller)",
    "Data-protection officer",
    "Contact at the label holder",
    "Technical contact",
    "Purpose and legal basis",
    "People informed on",
    "Period after which everything is deleted",
    "Date and signature",
)
LARGE = 14.0  # epsilons beyond allow odds to change a million-fold
AFTERWARDS = (
    "Messages that have left cannot be called back. A person who withdraws can be left out of the next training; "
    "models, predictions and releases of before stay what they are."
)


def page(source: Source) -> dict[str, object]:
    """What the template shows."""
    who = "the label holder" if source.holder else source.party
    return {
        "title": f"What leaves {who}",
        "kind": f"For the data-protection officer · {ORIGINS[source.origin]}",
        "verdict": verdict(source),
        "warns": warns(source),
        "facts": _facts(source),
        "leaves": leaves_table(source),
        "sees": sees(source),
        "comes": [] if source.holder else comes(source),
        "bounds": bounds(source),
        "not_covered": _not_covered(source),
        "uploads": source.uploads,
        "kept": kept_table(source),
        "afterwards": AFTERWARDS,
        "blanks": BLANKS,
        "checks": checks(source),
    }


def write_officer_page(source: Source, file: Path) -> Path:
    """Write the page; it appears whole or not at all."""
    return write_file(file, render_page("officer.html.j2", page(source)).encode())


# -- the verdict ----------------------------------------------------------------------------------


def verdict(source: Source) -> list[str]:
    """The outcome in a few sentences: first what is bounded and what is not, then what stays and what leaves."""
    if source.holder:
        return [_labels(source), _stays(source, "The label table")]
    stays = _stays(source, f"{source.party}'s table")
    outcome, training = _outcome(source), _training(source)
    if source.at_home:
        outcome, training = officer_rows.outcome(source, LARGE), officer_rows.training(source, LARGE)
    return [outcome, stays, *training, *_former(source), *_elsewhere(source), _labels_here(source)]


def _outcome(source: Source) -> str:
    """What bounds the messages of a party, in one sentence."""
    sent = [flow for flow in source.flows if flow.purpose == "TRAIN"]
    bare = any(flow.purpose != "TRAIN" and not flow.noise for flow in source.flows)
    whose, spent = f"{source.party}'s messages", source.spent
    if not source.flows:
        earlier = " in this run, but what left in an earlier one is used" if source.former else ""
        return f"Nothing computed from {source.party}'s table leaves{earlier}."
    if not sent:
        return f"Nothing computed from {source.party}'s table leaves in training; messages outside it have no bound."
    if not all(flow.noise for flow in sent):
        return f"Nothing bounds what {whose} reveal about the people in its table."
    if spent is None or not math.isfinite(spent.epsilon):
        return f"{whose} in training have noise; how much it protects is not known here."
    if officer_rows.weak(source, spent, LARGE):
        return f"{whose} in training have noise, but so little that it promises next to nothing."
    end = "; its messages outside training have no bound." if bare else "."
    return f"Noise bounds what {whose} in training reveal about {source.party} as a whole{end}"


def _stays(source: Source, what: str) -> str:
    if source.origin == "simulation":
        named = what[0].lower() + what[1:] if source.holder else what
        return f"Between organisations {_place(source, named)}; in this simulation all lay together."
    told = _place(source, what)
    return f"{told[0].upper() if source.shows else told[0]}{told[1:]}."


def _place(source: Source, what: str) -> str:
    if source.shows:
        return f"not all of {what} stays where it is: the label holder gets {source.shows}"
    return f"{what} stays where it is"


def _training(source: Source) -> list[str]:
    sent = [flow for flow in source.flows if flow.purpose == "TRAIN"]
    number = sum(flow.messages for flow in sent)
    if not number:
        return ["Nothing computed from it leaves in training."]
    times = words.count(number, "message")
    leave = f"In training {times} with numbers computed from it {_verb(source)}"
    spent = source.spent
    if spent is not None and math.isfinite(spent.epsilon):
        return [f"{leave}, with noise.", in_plain_words(source, spent)]
    if all(flow.noise for flow in sent):
        return [f"{leave}, with noise for which no figure is known here.", *_agreed(source)]
    return [f"{leave}, without noise: nothing bounds what they reveal about the people in it."]


def _agreed(source: Source) -> list[str]:
    budget, s = source.privacy.epsilon, source.privacy
    if source.origin != "label holder" or budget is None:
        return []
    facts = f"delta {s.delta:g}, unit PARTY, exact accountant, for training only"
    return [f"The run agreed on at most epsilon {budget:g} ({facts}); {source.party}'s own ledger has the figure."]


def _former(source: Source) -> list[str]:
    """What left in the run whose parts are taken over."""
    if not source.former:
        return []
    return [
        f"The run takes over parts of the run {source.former!r}: what left there is used here, and that run has a page "
        "of its own, which says what bounds it."
    ]


def _elsewhere(source: Source) -> list[str]:
    """What leaves outside training without noise."""
    bare = [flow for flow in source.flows if flow.purpose != "TRAIN" and not flow.noise]
    if not bare:
        return []
    told = words.listing([f"{words.count(f.messages, 'message')} for {TOLD[f.purpose]}" for f in bare])
    return [f"Besides, {told} {_verb(source)} without noise, and no figure covers them."]


def in_plain_words(source: Source, spent: Spent) -> str:
    """What an epsilon means, with everything that belongs to it."""
    s, whole = source.privacy, f"that {source.party} took part"
    if source.statement.neighbours == "replaced":
        whole = f"that {source.party} holds these data and not others"
    odds = f"raise or lower the odds {whole} at most {math.exp(min(spent.epsilon, LARGE)):,.1f}-fold"
    means = f"Whoever sees all of them can {odds}, but for a chance of {s.delta:g}"
    if officer_rows.weak(source, spent, LARGE):
        means = "A figure of this size promises next to nothing"
    return f"{means} ({figure(source, spent)}). This is about {source.party} as a whole, not about a single person."


def figure(source: Source, spent: Spent) -> str:
    """An epsilon, never without unit, delta, neighbours, accountant and what it is for."""
    accountant = "RDP accountant" if spent.counted else "exact accountant"
    world = WORLDS[source.statement.neighbours].partition(" (")[0]
    facts = f"delta {source.privacy.delta:g}, unit PARTY, {world}, {accountant}, training only"
    return f"epsilon {spent.epsilon:.3f}: {facts}"


def _labels(source: Source) -> str:
    """What the label holder's messages say of labels."""
    sent = [flow for flow in source.flows if flow.labels]
    plain = sum(flow.messages for flow in sent if source.guest and not flow.noise)
    others, exposure = sum(flow.messages for flow in sent) - plain, source.statement.about.exposure
    if not sent:
        return "No message that leaves it is computed from a label."
    start = f"{words.count(others, 'message')} computed from labels {_verb(source)}"
    if exposure is not LabelExposure.EPS:
        return f"{start}, and every party can read the training labels from them: nothing protects the labels."
    own = f"{words.count(plain, 'message')} with the true labels {_verb(source)} for {source.guest}, {GUEST}"
    return f"{start}, made from noisy labels ({_label_bound(source)}).{f' Besides, {own}.' if plain else ''}"


def _label_bound(source: Source) -> str:
    epsilon = source.privacy.labels.epsilon
    return f"epsilon {epsilon:g}: delta 0, unit LABEL, one row's whole label replaced, noise drawn once"


def _labels_here(source: Source) -> str:
    if source.statement.about.exposure is LabelExposure.FULL:
        return f"What comes back lets {source.party} read the labels of all training rows."
    if source.guest == source.party:
        return f"What comes back to {source.party}, {GUEST}, are the true labels of all training rows."
    return LABELS.get(source.statement.about.exposure, f"What comes back to {source.party} is made from noisy labels.")


def warns(source: Source) -> bool:
    """Whether the verdict is a warning: something has no bound."""
    if source.holder:
        return source.statement.about.exposure is LabelExposure.FULL
    spent = source.spent
    bound = spent is not None and not officer_rows.weak(source, spent, LARGE)
    return any(not flow.noise for flow in source.flows) or (bool(source.flows) and not bound)


def _verb(source: Source) -> str:
    return "would leave" if source.origin == "plan" else "left"


# -- the sections ---------------------------------------------------------------------------------


def _facts(source: Source) -> list[tuple[str, str]]:
    others = [name for name in source.parties if name != source.party]
    about = "the label holder" if source.holder else source.party
    return [
        ("Whose page", about),
        ("With whom", words.listing([*(() if source.holder else ("the label holder",)), *others])),
        ("Method", source.method.name),
        ("Plan" if source.origin == "plan" else "Run", source.name),
    ]


def leaves_table(source: Source) -> Table:
    """Every kind of message that leaves."""
    columns = ("what leaves", "to whom", "how often", "size", "what it could reveal", "what bounds that")
    rows = tuple(_leaves(source, flow) for flow in source.flows)
    rows = (officer_rows.leaves(source), *rows) if source.at_home else rows
    none = ("nothing", "nobody", "never", "-", "-", "-")
    caption = f"What {_leave(source)}"
    if source.holder and source.down is not None:
        caption += f"; replies of training have {words.size(source.down)} in all"
    return Table(caption, columns, rows or (none,), frozenset(range(6)))


def _leave(source: Source) -> str:
    return "would leave" if source.origin == "plan" else "has left so far"


def _leaves(source: Source, flow: Flow) -> tuple[str, ...]:
    often = words.count(flow.messages, "time")
    if flow.rows:
        often += f", about {words.count(round(flow.rows / flow.messages), 'row')} each" if flow.messages else ""
    size = "see above" if source.holder and flow.purpose == "TRAIN" else "not recorded here"
    size = size if flow.bytes is None else f"{'about ' * (not flow.counted)}{words.size(flow.bytes)}"
    if source.per_row and not source.holder:
        size += f"; {words.count(source.per_row, 'number')} per row"
    if source.holder:
        return (*_reply(source, flow, often), size, *_reply_reveals(source, flow))
    what, reveals = WHAT[flow.purpose].format(source.party), LITTLE if flow.noise else REVEALS
    if source.shows:
        what, reveals = f"{what}; with them {source.shows}", f"{source.shows}, as they are: they are in it"
    bound = "nothing" if not flow.noise else f"{flow.noise}; {_bound(source)}"
    return what, "the label holder" + _summed(source), often, size, reveals, bound


def _bound(source: Source) -> str:
    spent = source.spent
    known = spent is not None and math.isfinite(spent.epsilon)
    return "the figure above is for all of them together" if known else "no figure is known here"


def _summed(source: Source) -> str:
    return ", as part of a sum" if source.privacy.secure_sum.use else ""


def _reply(source: Source, flow: Flow, often: str) -> tuple[str, str, str]:
    to = "all parties" if flow.to == "*" else flow.to
    computed = "labels" if source.labels_only else "numbers computed from labels and from all uploads"
    what = computed if flow.labels else "row numbers and instructions"
    return f"{what}, for {TOLD[flow.purpose]}", to, often


def _reply_reveals(source: Source, flow: Flow) -> tuple[str, str]:
    if not flow.labels:
        return "which rows train, by number", "needs no bound"
    if flow.noise:
        return "noisy labels of the training rows", _label_bound(source)
    return "the labels of the training rows", "nothing"


def sees(source: Source) -> list[tuple[str, str]]:
    """Who can see what leaves."""
    told = [("Every party", "reads what the label holder sends to all.")]
    if not source.holder:
        told = [("The label holder", _reader(source)), ("The other parties", _others(source))]
    operator = (
        "names of the organisations, sizes, times and round numbers of messages. Contents are encrypted end to end."
    )
    if source.origin == "simulation":
        told.append(("Whoever ran this simulation", "had all columns and all labels; nobody was kept apart."))
        operator += " (Between organisations; here there was no server.)"
    told.append(("Whoever runs the message server", f"sees {operator}"))
    return told


def _reader(source: Source) -> str:
    if source.privacy.secure_sum.use:
        most = source.privacy.secure_sum.colluders
        alone = f"reads the sum of all parties' messages, not {source.party}'s alone"
        return f"{alone}, while at most {words.count(most, 'party', 'parties')} tell it what they know."
    return f"reads every message of {source.party}."


def _others(source: Source) -> str:
    shown = " ".join(source.statement.about.of_columns())
    replies = "replies, which are computed from everybody's and from labels"
    told = "labels, and no numbers that are computed from messages" if source.labels_only else replies
    return f"do not get {source.party}'s messages. They get {told}. {shown}".strip()


def comes(source: Source) -> list[str]:
    """What the party receives: it is data about people, too."""
    size = "" if source.down is None else f" ({words.size(source.down)} in training)"
    what = "Labels of the training rows" if source.labels_only else "Replies of the label holder, about training rows"
    return [f"{what}{size}. {_labels_here(source)}"]


def bounds(source: Source) -> list[tuple[str, list[str]]]:
    """How much, in the words of the statement."""
    return [(question, told) for question, told in source.statement.answers() if question != "What is not covered"]


def _not_covered(source: Source) -> list[str]:
    found = dict(source.statement.answers()).get("What is not covered", [])
    people = "A single person: figures are about an organisation as a whole, or about one label."
    return [*found, officer_rows.PEOPLE if source.privacy.by_row else people]


def kept_table(source: Source) -> Table:
    """What the software writes where; periods are for people to agree on."""
    own = f"at {source.party}" if not source.holder else "at the label holder"
    if source.origin == "simulation":
        rows = [("whoever ran it", "run folder: model, record, ledger, digests of training rows after noise")]
    else:
        rows = [
            (
                f"{own}: folder of the process",
                "its model, its ledger, what it sent last, the signed agreement, its key",
            ),
            ("the label holder: run folder", "its model, scores, its ledger, state of the training made from uploads"),
            ("message server", "encrypted messages until they are delivered"),
        ]
        rows = rows[1:] if source.holder else rows
    until = "until somebody deletes it"
    lines = tuple((where, what, "until delivered" if "server" in where else until, "") for where, what in rows)
    columns = ("where", "what is kept", "how long, by the software", "period agreed on (fill in)")
    return Table("What is kept, and how long", columns, lines, frozenset(range(4)))


def checks(source: Source) -> list[str]:
    """By what the page can be checked."""
    if source.origin == "plan":
        return ["Nothing has left yet. After training, make this page again: its figures then come from the ledger."]
    told = [f"The figures are counted from {source.file}, SHA-256 {source.ledger}." if source.ledger else ""]
    if source.origin == "party":
        told.append("It has one line for every message that left; colonnade privacy page makes this page of it again.")
    else:
        told.append("colonnade privacy explain RUN prints them again; colonnade audit RUN tries to refute them.")
    return [text for text in told if text]
