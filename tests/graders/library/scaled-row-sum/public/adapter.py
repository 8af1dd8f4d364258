"""From the canonical call to `row_sum`."""


def setup(entries, params):
    return params["scale"]


def run(entries, state, inputs):
    return {"y": entries.row_sum(inputs["x"], state)}
