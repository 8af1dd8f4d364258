"""From the canonical call to `softplus`, whose lone array is the result."""


def setup(entries, params):
    return None


def run(entries, state, inputs):
    return entries.softplus(inputs["x"])
