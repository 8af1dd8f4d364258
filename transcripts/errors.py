"""Errors of the archive.

ArchiveError
├── NotAnArchive        the folder is not an archive (or holds something else)
├── UnknownAttempt      no attempt, or several, match what was asked for
├── NewerFormat         written by a newer version of this product
├── ArchiveReadOnly     no permission to write
├── ArchiveFull         no space left; nothing already written is damaged
├── ArchiveFault        the archive's storage failed; nothing written is damaged
├── ClaimHeld           another live orchestrator works on the cell
├── ClaimLost           our claim expired and somebody else took the cell
├── AlreadySealed       the attempt is finished; it cannot be written again
├── Corrupt             a chain, seal or record does not verify (says where)
└── UnknownDialect      no reader recognises an imported log
"""


class ArchiveError(Exception):
    """Base of everything the archive raises on purpose; the message says what to do next."""


class NotAnArchive(ArchiveError):
    """The folder exists and is not an archive."""


class UnknownAttempt(ArchiveError):
    """No attempt, or several, match what was asked for."""


class NewerFormat(ArchiveError):
    """The archive was written by a newer version; reading it would guess."""


class ArchiveReadOnly(ArchiveError):
    """The archive cannot be written by this user."""


class ArchiveFull(ArchiveError):
    """The disk is full; the session stops and can go on when space returns."""


class ArchiveFault(ArchiveError):
    """The archive's storage failed, or the process ran out of descriptors or memory for it.

    Nothing that was written is damaged, and the same call may succeed later.
    """


class ClaimHeld(ArchiveError):
    """Another live orchestrator holds the cell."""


class ClaimLost(ArchiveError):
    """The claim was taken over; the loser must stop without writing."""


class AlreadySealed(ArchiveError):
    """The attempt is finished."""


class Corrupt(ArchiveError):
    """Something in the archive does not verify."""


class UnknownDialect(ArchiveError):
    """No dialect recognises the log."""
