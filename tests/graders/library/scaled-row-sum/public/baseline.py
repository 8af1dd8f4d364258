"""What plain NumPy takes."""


def row_sum(x, scale):
    return scale * x.sum(axis=1)
