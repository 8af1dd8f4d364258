"""No cases beyond the shapes: the task serves timing."""


def cases(reference, seed, tier, device):
    return iter(())
