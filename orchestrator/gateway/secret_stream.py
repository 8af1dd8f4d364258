"""A stream of bytes without a key in it, wherever the key is cut."""

HIDDEN = b"[hidden]"


class SecretStream:
    """Passes bytes on; holds back only what may be the beginning of the key."""

    def __init__(self, key: str) -> None:
        self._key, self._held = key.encode(), b""

    def clean(self, data: bytes) -> bytes:
        """What may be passed on now."""
        data = (self._held + data).replace(self._key, HIDDEN)
        longest = min(len(self._key) - 1, len(data))
        n = next((n for n in range(longest, 0, -1) if self._key.startswith(data[-n:])), 0)
        self._held = data[len(data) - n :]
        return data[: len(data) - n]

    def rest(self) -> bytes:
        """What was held back, at the end."""
        held, self._held = self._held, b""
        return held
