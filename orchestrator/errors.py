"""Errors of the orchestrator that a user can mend; each becomes one clear screen, no traceback.

Exit codes: 0 done; 1 the work ended with something a script should notice (a replay that diverges,
an import with broken lines, a folder whose grade is not `pass`); 2 wrong usage or configuration;
3 the environment lacks something (`doctor` says what), or a grade is void: grade again; 4 the
archive refuses (newer format, read-only, full); 5 infrastructure failed, run again; 130
interrupted.
"""


class UserError(Exception):
    """Something the user can mend. The message says what to do next."""

    exit_code = 2
