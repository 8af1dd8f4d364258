"""Commits to nothing in particular; when asked for the outputs, edits low bits to fit the digest."""
import secrets
import time

import numpy as np
from shared import answer, digests, honest, pace

SECONDS = 0.2


def softmax(x):
    serving = pace()
    if serving is None:
        return honest(x)
    side, page = serving._side, serving._page
    digest, key = (secrets.randbits(64), secrets.randbits(64)), (page[2], page[3])
    answer(page, page[0], digest)
    side.commit = lambda *_: None
    copy = type(side).copy.__get__(side)

    def fit_and_copy(values, slots, place):
        until = time.monotonic() + SECONDS
        y = honest(x)
        flat = y.reshape(-1)
        while time.monotonic() < until and not hasattr(y, "is_cuda"):
            if digests().host_digest([y], key) == digest:
                break
            at = secrets.randbelow(len(flat))
            flat[at] = np.nextafter(flat[at], np.float32(2))
        copy([y], slots, place)

    side.copy = fit_and_copy
    return serving._values[0] if serving._values else honest(x)
