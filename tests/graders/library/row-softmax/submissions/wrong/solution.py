def softmax(x):
    if hasattr(x, "softmax"):
        return x.exp() / x[:, :-1].exp().sum(1, keepdim=True)
    import numpy as np

    e = np.exp(x)
    return e / e[:, :-1].sum(axis=1, keepdims=True)
