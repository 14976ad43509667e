"""What a run says of itself to people: its epsilons in words, and its card in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from colonnade.privacy.epsilon import Epsilon, of_columns, of_labels

if TYPE_CHECKING:
    from colonnade.federation import Federation
    from colonnade.privacy.promise import UploadGain
    from colonnade.run import Run


class Outward:
    """The part of a run that reads it as a report would; all of it is computed when it is asked for."""

    @property
    def epsilon(self) -> Epsilon | None:
        """What training cost the party that it cost most, with unit, delta, accountant and what it does not cover.

        None: no upload was noised, and there is no such figure. `str(run.epsilon)` says all of it.

        Examples:
            >>> import colonnade as cn
            >>> noise = {"mechanism": "gaussian", "clip": 1.0, "sigma": 20.0}
            >>> run = cn.fit(cn.sets.load_set("digits", parties=2), "vimadmm", rounds=10, privacy=noise)
            >>> run.epsilon.unit, run.epsilon.delta, run.epsilon.accountant
            ('PARTY', 1e-05, 'exact')
            >>> 0 < float(run.epsilon) < 1
            True
        """
        from colonnade.report.privacy import statement_of_run  # stands above runs: imported only here

        return of_columns(statement_of_run(cast("Run", self)))

    @property
    def label_epsilon(self) -> Epsilon | None:
        """What the replies told the parties about one row's label; None: labels were not noised, or none went down."""
        from colonnade.report.privacy import statement_of_run

        return of_labels(statement_of_run(cast("Run", self)))

    def upload_gain(self, federation: Federation | None = None, **how: Any) -> UploadGain:
        """What the uploads contributed: trains again without their signal, and as `local_only` (`upload_gain.py`).

        Settings are `seeds` and `watch`. Without a federation, the data of the run's own configuration are loaded.

        Examples:
            >>> import colonnade as cn
            >>> noise = {"mechanism": "gaussian", "clip": 0.01, "sigma": 20.0, "evaluation": "simulated"}
            >>> digits = cn.sets.load_set("digits", parties=2)
            >>> run = cn.fit(digits, "vimadmm", rounds=5, privacy=noise, progress=False)
            >>> found = run.upload_gain(digits)
            >>> found["metric"], found["gain"] is not None
            ('accuracy', True)
        """
        from colonnade.upload_gain import upload_gain  # stands above runs: imported only here

        return upload_gain(cast("Run", self), federation, **how)

    def _repr_html_(self) -> str:
        from colonnade.report.notebook import of_run

        return of_run(cast("Run", self))
