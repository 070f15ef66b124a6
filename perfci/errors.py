"""What perfci raises.

    PerfciError
    ├── SettingsError       perfci.toml, an option or an environment variable is wrong
    ├── ArtifactError       a result file is truncated, foreign or out of range
    ├── SourceError         a repository, revision or worktree cannot be used
    ├── DeviceError         the device that was asked for is absent or in use
    ├── SuiteError          a suite cannot be prepared or run at all
    ├── StoreError          the database is missing, locked, read-only or of another schema
    └── ServiceError        Airflow, a port or another perfci process stands in the way

A benchmark that fails is no exception: it is a Measurement with a status. An error here means that
perfci could not do what it was asked; the command line prints it as one line and exits with 2.
"""

from __future__ import annotations


class PerfciError(Exception):
    """`message` names the offending value, `next_step` says what to do about it."""

    def __init__(self, message: str, *, next_step: str) -> None:
        super().__init__(f"{message}; {next_step}")
        self.message = message
        self.next_step = next_step

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.next_step)


def _rebuild(kind: type[PerfciError], message: str, next_step: str) -> PerfciError:
    return kind(message, next_step=next_step)


class SettingsError(PerfciError):
    pass


class ArtifactError(PerfciError):
    pass


class SourceError(PerfciError):
    pass


class DeviceError(PerfciError):
    pass


class SuiteError(PerfciError):
    pass


class StoreError(PerfciError):
    pass


class ServiceError(PerfciError):
    pass
