"""From the canonical call to `product`; bfloat16 may travel as its bits."""


def setup(_entries, _params):
    return None


def run(entries, _state, inputs):
    import torch  # noqa: PLC0415 - CPU machines have none

    a, b = (x.view(torch.bfloat16) for x in (inputs["a"], inputs["b"]))
    return {"c": entries.product(a, b)}
