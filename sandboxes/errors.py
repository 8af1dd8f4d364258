"""Errors of sandboxes: a fault of the provider, never the failure of a command.

SandboxError
├── SandboxUnavailable   this machine cannot run that kind (says what to install)
├── SandboxStartFailed   it should have worked and did not
├── SandboxGone          the container or process died under us; the session can be resumed
├── OutsideWorkspace     a path that would leave the workspace
├── FileTooLarge         a file above the limit of `get`
└── LeaseBusy            somebody else holds a lease of this machine
"""


class SandboxError(Exception):
    """Base of everything that sandboxes raise on purpose."""


class SandboxUnavailable(SandboxError):
    """This machine cannot run that kind of sandbox."""


class SandboxStartFailed(SandboxError):
    """The sandbox did not start."""


class SandboxGone(SandboxError):
    """The sandbox died; its workspace is still there."""


class OutsideWorkspace(SandboxError):
    """A path that would leave the workspace."""


class FileTooLarge(SandboxError):
    """A file above the limit of `get`."""


class LeaseBusy(SandboxError):
    """Somebody else holds a lease of this machine, longer than we were told to wait."""
