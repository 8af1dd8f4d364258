"""From the canonical call to ``fused_softmax_topk(logits, k)``, for arrays and CUDA tensors."""


def setup(entries, params):
    """k, and whether the logits are bfloat16 (CUDA only), which travels as ``uint16``."""
    return int(params["k"]), bool(params.get("bfloat16"))


def run(entries, state, inputs):
    """One call. The two results may come in either order, or in a dict."""
    k, is_bfloat16 = state
    logits = _as_bfloat16(inputs["logits"]) if is_bfloat16 else inputs["logits"]
    result = entries.topk(logits, k)
    if isinstance(result, dict):
        return {name: result[name] for name in ("indices", "probabilities")}
    first, second = result
    if "int" in str(second.dtype):
        first, second = second, first
    return {"indices": first, "probabilities": second}


def _as_bfloat16(tensor):
    import torch  # noqa: PLC0415 - CPU machines have none

    return tensor.view(torch.bfloat16)
