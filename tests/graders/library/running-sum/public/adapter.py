"""From the canonical call to `advance`, which returns one output and writes the other."""


def setup(entries, params):
    return None


def run(entries, state, inputs):
    return {"before": entries.advance(inputs["x"], inputs["total"])}
