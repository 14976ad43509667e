"""Who may import whom, and which outside libraries live in one place only."""

import pytest

from tests.architecture.source import Source, lines, package

BASE = {
    "errors", "randomness", "config", "extras", "federation", "folder", "gpu", "layout", "mapped", "numerals",
    "plugins", "record", "row_split", "rows", "tasks", "temporary", "withdrawn", "written", "psi",
}  # fmt: skip
DOMAIN = {"admm", "upload_cache", "models", "privacy", "schedule", "wire"} | BASE
TRAINING = {"engines", "evaluate", "methods"} | DOMAIN
MODEL = {"design", "model", "part", "predict", "saved", "score"}
LOOP = {"callbacks", "checkpoint", "fit", "job", "keywords", "live", "opening", "outward", "progress", "run", "store"}
RUNNING = {"data"} | LOOP | MODEL | TRAINING
EVERYTHING = {
    "__init__",
    "align",
    "audit",
    "bench",
    "beside",
    "check",
    "cli",
    "compare",
    "cross_validate",
    "deploy",
    "draft",
    "estimate",
    "estimators",
    "explain",
    "extend",
    "identity",
    "joining",
    "leave",
    "ledger_files",
    "many",
    "regroup",
    "report",
    "scorecards",
    "search_space",
    "service",
    "testing",
    "search",
    "tune",
    "trackers",
    "upload_gain",
    "watching",
    "web",
    "worth",
} | RUNNING

# Unit -> what it may import besides itself. A unit is a folder or a top-level module of the package.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),  # the exception tree stands on nothing
    "randomness": {"errors"},  # streams know only how to refuse
    "gpu": set(),  # work and copies that nobody waits for, whatever is computed
    "layout": {"errors"},  # how tensors lie in memory: a contract of all stations, whatever they compute
    "extras": {"errors"},  # libraries that only some install know only how to be missing
    "folder": {"errors"},  # a lock knows nothing of what is written under it
    "config": {"errors"},  # settings know no method and no data
    "record": {"errors", "folder"},  # what a stored run says, by name and type; nothing of how it is computed
    "numerals": set(),  # how numbers read, whatever they are of
    "psi": set(),  # counts then and now, whatever was counted
    "withdrawn": {
        "errors",
        "folder",
        "written",
    },  # ids of people who withdrew, and marks; nothing of what rows or runs are
    "written": set(),  # a file is whole, whatever is in it
    "temporary": set(),  # a folder, and nothing of what is put there
    "mapped": {"errors", "temporary"},  # numbers in files, whoever's they are
    "rows": {"errors", "mapped"},  # rows to predict: columns by party, and nothing of who trained what
    "plugins": {"errors"},  # tables that other packages add to; they know nothing of what is in them
    "tasks": {"errors", "gpu", "numerals", "plugins", "record"},  # what labels mean, before there are rows and parties
    "row_split": {"config", "errors", "randomness"},  # numbers of rows, and what the label holder says of them
    "federation": {"errors", "config", "mapped", "row_split", "rows", "tasks"},  # parties, labels, rows: all take it
    "data": BASE,  # loaders and splits make Federations and know no training
    "wire": BASE,  # messages and codec know nothing of what they carry
    "privacy": {"wire", "identity"} | BASE,  # the gate seals what may travel: it knows messages; masks need keys
    "models": BASE,  # networks know nothing of who trains them
    "admm": {"models"} | BASE,  # the mathematics knows heads, but no party, no wire and no method
    "upload_cache": {"models", "privacy"} | BASE,  # remembers what was heard, in the shapes that were agreed on
    "schedule": BASE,  # turns are a function of seed and number only
    "methods": {"admm", "models", "privacy", "schedule", "upload_cache"}
    | BASE,  # equations; no transport, engine or data set
    "evaluate": {"admm"} | BASE,  # metrics see outputs and labels, never a method
    "engines": {"methods", "evaluate", "identity"} | DOMAIN,  # decide only where the methods run
    "identity": BASE,  # certificates, signatures and envelopes know nothing of what they protect
    "align": {"identity", "wire", "data"} | BASE,  # finds common rows; knows no transport and no training
    "store": {"privacy", "wire"} | BASE,  # writes state and ledger, whatever trained them
    "checkpoint": {"store"} | TRAINING,  # what a run is, written and put back
    "ledger_files": {"identity", "privacy"} | BASE,  # reads ledgers for auditors, whoever wrote them
    "saved": {"data", "privacy"} | BASE,  # the files that runs, models and parts have in common
    "design": TRAINING,  # what all parts of a model agree on
    "part": {"data", "design", "saved"} | TRAINING,  # what one party holds: from its table to its upload
    "predict": {"data", "design", "part"} | TRAINING,  # new rows through the parts of a model
    "score": {"data", "predict"} | TRAINING,  # predictions of new rows beside their labels
    "model": {"data", "design", "part", "predict", "saved", "score"}
    | TRAINING,  # what remains; it knows no training loop
    "outward": {"privacy"},  # how a run is told to people; it reads runs through the report, when asked
    "run": {"data", "outward"}
    | MODEL
    | TRAINING,  # a model, and the record of how the loop made it; it does not know the loop
    "live": set(),  # a file for those who watch; it knows nothing of them, and little of the training
    "progress": {"callbacks", "live", "privacy"}
    | BASE,  # what watchers and people see of a training; knows no training
    "opening": {"run"} | TRAINING,  # what a run begins with at the label holder, in whichever process
    "callbacks": {"errors", "live"},  # what watches a training from outside
    "keywords": {"run"} | TRAINING,  # which settings a keyword of fit means
    "fit": {"run", "callbacks", "checkpoint", "design", "keywords", "model", "opening", "store", "progress"}
    | TRAINING,  # the loop uses all stations of the data flow
    "job": {"callbacks", "design", "fit", "progress", "run", "data"} | TRAINING,  # a configuration file as objects
    "deploy": {"align", "identity", "joining", "web"} | RUNNING,  # the processes of separate organisations
    "web": {
        "config",
        "errors",
        "extras",
        "folder",
        "written",
    },  # an HTTP server in a thread and its callers, whatever it serves
    "service": {"align", "deploy", "identity", "web"} | RUNNING,  # long-lived processes around those of single runs
    "trackers": {"errors", "extras", "live", "progress", "record", "run"},  # callbacks; a training does not know which
    "watching": {"deploy", "identity", "ledger_files", "service", "web"}
    | RUNNING,  # reads what processes leave; none of them knows that it is watched
    "draft": {"report"} | RUNNING,  # a first configuration from tables; it writes TOML as the report does
    "check": RUNNING,  # looks at the data of a job, before it runs
    "estimate": RUNNING,  # the bytes of a job, before it runs
    "estimators": RUNNING,  # scikit-learn's face of tables, trainings and models
    "audit": RUNNING,  # attacks runs from outside; nothing below knows that it is attacked
    "regroup": RUNNING,  # makes a run of other parties from what one kept
    "extend": {"regroup"} | RUNNING,  # trains a newcomer, and puts two trainings together
    "leave": {"regroup"} | RUNNING,  # takes a party out
    "upload_gain": RUNNING,  # trains a finished run again without what its uploads say
    "explain": RUNNING,  # asks finished runs, and trains again; nothing below knows that it is explained
    "many": {"search_space"} | RUNNING,  # several trainings, one folder each, perhaps in processes of their own
    "cross_validate": {"compare", "many", "report"} | RUNNING,  # one method on several splits of the same rows
    "scorecards": RUNNING,  # tables in, a table of points out; nothing below knows of points
    "beside": {"many", "report"} | RUNNING,  # a method beside each party alone and all columns in one place
    "joining": {"evaluate"} | DOMAIN,  # a question before any training: messages and scores, but no method and no loop
    "worth": {"joining"} | RUNNING,  # that question where all tables are in one place
    "compare": {"beside", "many", "report"} | RUNNING,  # several methods side by side, for Python and the command line
    "search_space": RUNNING,  # what a search may change about a method
    "search": {"search_space"}
    | RUNNING,  # trains many times and keeps the best settings; nothing below knows that it is searched
    "tune": {"compare", "many", "search", "search_space"} | RUNNING,  # the same from Python
    "testing": RUNNING,  # contract tests for whoever adds a method, a task or a metric; no test runner in it
    "report": RUNNING,  # reads runs; nothing below knows that it is reported on
    "bench": EVERYTHING - {"cli"},  # measures anything, prints nothing
    "cli": EVERYTHING,  # the outermost shell
    "__main__": {"cli"},  # only a door to the command line
    "__init__": {"check", "compare", "cross_validate", "estimators", "report", "scorecards", "tune", "worth"}
    | RUNNING,  # the front door re-exports; it opens without any extra installed
}

# Allowed only inside a function (or for the type checker): importing the unit must not load these.
MAY_IMPORT_LATE: dict[str, set[str]] = {
    "federation": {
        "data.table",
        "data.columns",
        "data.preprocess",
        "report.notebook",
    },  # tables are read only when some are given, and a card is made only when a notebook asks
    "checkpoint": {"fit"},  # the Trainer, for the type checker
    "progress": {"run"},  # for the type checker
    "callbacks": {"progress", "run"},  # for the type checker
    "part": {"explain"},  # its owner's explanations, only when asked
    "model": {"explain", "report.notebook"},  # the same, and a card is made only when a notebook asks
    "predict": {"model"},  # the Model, for the type checker
    "score": {"model"},  # likewise
    "outward": {
        "federation",
        "report",
        "run",
        "upload_gain",
    },  # reading a run as a report does and training it again, only when asked; names for the type checker
    "run": {"report", "explain", "extend", "leave"},  # only when asked: a run needs none of them
}

# Outside library -> where it may be imported.
HOMES: dict[str, tuple[str, ...]] = {
    "matplotlib": ("report/",),  # and one file only, see below
    "jinja2": ("report/",),  # pages are made in one place
    "typer": ("cli/",),  # the library works without a command line
    "rich": ("cli/", "report/"),  # tables and progress are for people
    "nats": ("engines/",),  # the transport between organisations: one file, see below
    "cryptography": ("identity/", "privacy/secure_sum/", "privacy/normal.py"),  # keys; masks and noise are streams
    "skops": (
        "data/stored.py",
        "models/stored_estimator.py",
    ),  # fitted transforms and estimators as files; both say which types they trust
    "lightgbm": ("models/trees.py", "bench/"),  # boosted trees
    "uvicorn": ("web/",),  # how HTTP is served
    "tensorboard": ("trackers/",),  # three that write figures
    "mlflow": ("trackers/",),
    "wandb": ("trackers/",),
    "optuna": ("search.py",),  # the search for settings
    "dp_accounting": ("privacy/",),  # epsilons come from one place
    "private_set_intersection": ("align/",),
    "pickle": (),  # loading one runs whatever is in it
    "cloudpickle": (),
    "dill": (),
    "joblib": (),
    "shelve": (),  # pickle inside
    "marshal": (),  # as unsafe as pickle
}
ONE_FILE_ONLY = ("matplotlib", "nats", "private_set_intersection")


def unit_of(target: str) -> str:
    """`colonnade.methods.base.Method` -> `methods`; a name that is no unit comes from the front door."""
    unit = target.split(".")[1] if "." in target else "__init__"
    return unit if unit in MAY_IMPORT else "__init__"


def layer_complaints(source: Source) -> list[str]:
    if source.unit not in MAY_IMPORT:
        return [source.at(1, f"{source.unit!r} has no line in MAY_IMPORT: say there what it may import, and why")]
    complaints = []
    for found in source.imports:
        if found.target.split(".")[0] != "colonnade":
            continue
        wanted = unit_of(found.target)
        allowed = {source.unit} | MAY_IMPORT[source.unit]
        late = found.late and any(
            f"{found.target}.".startswith(f"colonnade.{module}.") for module in MAY_IMPORT_LATE.get(source.unit, ())
        )
        if wanted not in allowed and not late:
            complaints.append(source.at(found.line, f"{source.unit} must not import {wanted} ({found.target})"))
    return complaints


def home_complaints(source: Source) -> list[str]:
    return [
        source.at(found.line, f"{library} may be imported in {' and '.join(HOMES[library]) or 'no file'} only")
        for found in source.imports
        if (library := found.target.split(".")[0]) in HOMES and not source.path.startswith(HOMES[library] or ("-",))
    ]


def spread_complaints(sources: list[Source]) -> list[str]:
    complaints = []
    for library in ONE_FILE_ONLY:
        files = [s.path for s in sources if any(i.target.split(".")[0] == library for i in s.imports)]
        if len(files) > 1:
            complaints.append(f"{library} is imported in {len(files)} files, not one: {', '.join(files)}")
    return complaints


def test_imports_follow_the_layers() -> None:
    found = [complaint for source in package() for complaint in layer_complaints(source)]
    assert not found, lines(found)


def test_outside_libraries_stay_at_home() -> None:
    found = [complaint for source in package() for complaint in home_complaints(source)]
    assert not found, lines(found)


def test_drawing_and_sending_each_happen_in_one_file() -> None:
    assert spread_complaints(package()) == []


def test_the_table_has_no_circle_between_different_units() -> None:
    """A unit never reaches itself through others, except that cli, bench and the front door see everything."""
    inner = MAY_IMPORT.keys() - {"cli", "bench", "report", "__init__", "__main__"}
    for unit in inner:
        seen: set[str] = set()
        frontier = MAY_IMPORT[unit] - {unit}
        while frontier:
            seen |= frontier
            frontier = {after for unit_seen in frontier for after in MAY_IMPORT[unit_seen]} - seen
        assert unit not in seen, f"{unit} reaches itself"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("methods/x.py", "from colonnade.engines.loop import Loop"),
        ("methods/x.py", "import colonnade.engines"),
        ("methods/x.py", "from colonnade import engines"),
        ("methods/x.py", "from ..engines import loop"),
        ("methods/x.py", "def f():\n    from colonnade.wire import codec"),
        ("methods/x.py", "if TYPE_CHECKING:\n    from colonnade.engines import Loop"),
        ("methods/x.py", "from colonnade import fit"),
        ("admm/step.py", "from colonnade import Federation"),  # the front door, from the inside
        ("run.py", "from colonnade.report.html import page"),
        ("federation.py", "def f():\n    from colonnade.data.split import strips"),
        ("federation.py", "from colonnade.data.table import Table"),
        ("bench/speed.py", "from colonnade.cli.main import main"),
        ("somewhere/new.py", ""),
    ],
)
def test_a_wrong_import_is_seen(path: str, text: str) -> None:
    assert layer_complaints(Source(path, text))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("methods/x.py", "from colonnade.methods import base\nfrom . import _steps\nfrom ..admm.step import update_z"),
        ("methods/x.py", "import torch\nfrom colonnade.federation import Task"),
        ("run.py", "def report(self):\n    from colonnade.report.html import page"),
        ("run.py", "if TYPE_CHECKING:\n    from colonnade.report.html import Page"),
        ("federation.py", "def f():\n    from colonnade.data.table import Table"),
        ("cli/train.py", "from colonnade import __version__, fit"),
    ],
)
def test_a_right_import_is_left_alone(path: str, text: str) -> None:
    assert layer_complaints(Source(path, text)) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("report/html.py", "import typer"),
        ("fit.py", "from rich.progress import Progress"),
        ("cli/report.py", "import jinja2"),
        ("evaluate/metrics.py", "def draw():\n    import matplotlib.pyplot as plt"),
        ("cli/train.py", "import pickle"),
        ("data/cifar.py", "from pickle import loads"),
        ("store.py", "import joblib"),
        ("deploy/party.py", "from nats.aio.client import Client"),
        ("deploy/agreement.py", "from cryptography import x509"),
    ],
)
def test_a_library_away_from_home_is_seen(path: str, text: str) -> None:
    assert home_complaints(Source(path, text))


def test_two_files_that_draw_are_seen() -> None:
    assert spread_complaints([Source(f"report/{n}.py", "import matplotlib") for n in ("curves", "bars")])
