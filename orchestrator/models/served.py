"""Whether the model that answered is the one that was asked."""

import re

_VERSION = r"[-@:](\d[\d.-]*|latest|preview|free|exacto|nitro)"


def same_model(asked: str, served: str) -> bool:
    """True where ``served`` may be ``asked``: a vendor's prefix or a version's suffix may differ.

    ``gpt-5`` is served as ``gpt-5-2025-08-07``, ``z-ai/glm-5`` as ``glm-5``.
    """
    one, other = _bare(asked), _bare(served)
    return one == other or bool(re.fullmatch(re.escape(one) + _VERSION, other))


def _bare(model: str) -> str:
    return re.sub(r"\[[^]]*\]$", "", model.partition("?")[0].rpartition("/")[2].lower())
