"""Every exception Colonnade raises on purpose.

    ColonnadeError
    ├── ConfigError         a setting is unknown, of the wrong type or out of range
    ├── DataError           columns, labels or files are not what was promised
    │   ├── MissingData     a file is not there and cannot be fetched
    │   ├── EstimatorInput  an estimator got what it cannot take; a ValueError, too
    │   └── RowsDisagree    parties do not hold the same rows
    ├── ModelError          a party's network cannot be run as asked
    ├── WireError           a message is malformed, too large or not finite
    ├── GateError           something tried to leave a party without passing the gate
    ├── Diverged            training left the finite numbers
    ├── LayoutError         a tensor that outlives a round is not row-major (debug mode only)
    ├── RunError            a run folder is missing, truncated or not a run
    │   ├── NoSuchScore     a run is asked for a score that its task does not have
    │   └── Unwritable      a run's store cannot be written: the disk is full, or gone
    ├── IdentityError       a certificate or a signature does not prove what it should
    ├── LinkError           the server between the organisations cannot be used
    └── Refused             an organisation does not agree to what another asks for

A message says what was wanted, what came and what to do. The command line prints
exactly that sentence and exits with status 2; nothing else is caught.
"""


class ColonnadeError(Exception):
    """Root of the tree: catch this to catch everything Colonnade raises on purpose."""


class ShortTraining(UserWarning):
    """A warning, not an error: the rounds do not visit every training row even once."""


class DoubtfulScore(UserWarning):
    """A warning, not an error: a score that is no better than guessing, or not what the task is judged by."""


class RowsLeftOut(UserWarning):
    """A warning, not an error: tables were joined, and rows whose id not every table has do not take part."""


class DoubtfulData(UserWarning):
    """A warning, not an error: a table can be trained from, but probably not as it was meant."""


class PartiesLeftOut(UserWarning):
    """A warning, not an error: rows were predicted without some of the parties, as was asked for."""


class UnknownTrainingRows(UserWarning):
    """A warning, not an error: a run with noise that does not know its training rows predicts raw rows."""


class TrackingEnded(UserWarning):
    """A warning, not an error: what a training's figures were written to has failed; the training goes on."""


class PluginLeftOut(UserWarning):
    """A warning, not an error: an installed package offers something that cannot be used; all else can."""


class ConfigError(ColonnadeError):
    """A setting is unknown, of the wrong type or out of range."""


class DataError(ColonnadeError):
    """Columns, labels or files are not what was promised."""


class MissingData(DataError):
    """A data file is not there and cannot be fetched."""


class EstimatorInput(DataError, ValueError):
    """An estimator got what it cannot take; users of scikit-learn catch it as a ValueError."""


class RowsDisagree(DataError):
    """Parties, or a party and the label holder, do not hold the same rows."""


class ModelError(ColonnadeError):
    """A party's network cannot be run as asked."""


class WireError(ColonnadeError):
    """A message is malformed, too large, of another version or not finite."""


class GateError(ColonnadeError):
    """Something tried to leave a party without passing its gate."""


class AccountingError(ColonnadeError):
    """An epsilon was asked for that cannot be given, or a budget that cannot be kept."""


class BudgetSpent(AccountingError):
    """One more release would cost more privacy than there is left; it was not made."""


class Diverged(ColonnadeError):
    """Training left the finite numbers; `party` says whose did: a party's name, or "coordinator"."""

    def __init__(self, party: str, what: str) -> None:
        who = "the coordinator" if party == "coordinator" else f"party {party!r}"
        super().__init__(f"{who} computed a non-finite {what}")
        self.party = party


class LayoutError(ColonnadeError):
    """Debug mode found a tensor whose layout a checkpoint would not keep: an error of the program, not of its user."""


class RunError(ColonnadeError):
    """A run folder is missing, truncated, of another version or not a run at all."""


class NoSuchScore(RunError, AttributeError):
    """A run is asked for a score that its task does not have; `hasattr` and `getattr` see it as absent."""


class Unwritable(RunError):
    """The store of a run cannot be written; what was to be written has not happened."""


class IdentityError(ColonnadeError):
    """A certificate is expired, of another authority or of another name, or a signature does not hold."""


class LinkError(ColonnadeError):
    """The server between the organisations cannot be reached, or does not let this one do what it must."""


class Refused(ColonnadeError):
    """An organisation does not agree to what another asks for; the sentence names both and the reason."""
