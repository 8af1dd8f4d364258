"""Which auditor made an audit: a digest of its code, so that no change of a rule goes unsaid."""

import hashlib
from pathlib import Path

_HERE = Path(__file__).parent


def code_version() -> str:
    """Twelve hex digits over the files of this package and the vocabulary of mechanisms."""
    total = hashlib.sha256()
    for path in [*sorted(_HERE.rglob("*.py")), _HERE.parent / "mechanisms.py"]:
        total.update(f"{path.relative_to(_HERE.parent)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:12]


AUDITOR_VERSION = code_version()
"""Of this process: worked out once, when the auditor is first imported (about a millisecond)."""
