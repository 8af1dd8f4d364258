"""What it returns: no arrays, arrays that lie, arrays that compute late."""

from hostile.base import attack

SUM = "scale * x.sum(axis=1)"

LAZY = """
class Lazy:
    def __init__(self, x, scale): self.x, self.scale = x, scale
    def __array__(self, *a, **k): return self.scale * self.x.sum(axis=1)
"""

ATTACKS = (
    attack("nothing returned", "wrong", "None", "return None"),
    attack(
        "Python objects", "wrong", "an array of objects", "return np.array([object()] * len(x))"
    ),
    attack("text", "wrong", "an array of words", "return np.array(['PASS'] * len(x))"),
    attack("dates", "wrong", "datetime64", f"return ({SUM}).astype('M8[s]')"),
    attack("named fields", "wrong", "a structured array", f"return ({SUM}).view([('y', 'f4')])"),
    attack("other bytes", "wrong", "big-endian numbers", f"return ({SUM}).astype('>f4')"),
    attack("long doubles", "wrong", "a dtype that the wire lacks", f"return ({SUM}).astype('g')"),
    attack("complex numbers", "wrong", "a dtype that the wire lacks", f"return {SUM} + 0j"),
    attack("wrong dtype", "wrong", "float64 for float32", f"return ({SUM}).astype(np.float64)"),
    attack("wrong shape", "wrong", "a column", f"return ({SUM})[:, None]"),
    attack("too few", "wrong", "all rows but the last", f"return ({SUM})[:-1]"),
    attack("NaN", "nan", "not a number", f"return {SUM} * np.float32('nan')"),
    attack("infinity", "nan", "an infinite row", f"y = {SUM}\ny[-1] = np.inf\nreturn y"),
    attack("zeros", "wrong", "no work at all", "return np.zeros(len(x), np.float32)"),
    attack(
        "half the precision",
        "wrong",
        "sums in float16: within no gate of float32",
        "return (scale * x.astype(np.float16).sum(axis=1)).astype(np.float32)",
    ),
    attack("output beyond its room", "wrong", "16 MB", "return np.zeros(1 << 22, np.float32)"),
    attack(
        "an array that equals anything",
        "wrong",
        "a subclass whose comparisons say yes",
        f"return ({SUM}).view(Equal)",
        "class Equal(np.ndarray):\n    def __eq__(self, other): return np.True_",
    ),
    attack(
        "an object that equals anything",
        "wrong",
        "no array, but equal to one",
        "return Equal()",
        "class Equal:\n    shape = dtype = 1\n    def __eq__(self, other): return True\n"
        "    def __getattr__(self, name): return Equal()",
    ),
    attack("computes when it is read", "wrong", "`__array__`", "return Lazy(x, scale)", LAZY),
    attack(
        "computes when it is read, by interface",
        "wrong",
        "an `__array_interface__` property",
        "return Late(x, scale)",
        "class Late:\n    def __init__(self, x, scale): self.x, self.scale = x, scale\n"
        "    @property\n    def __array_interface__(self):\n"
        "        self.y = self.scale * self.x.sum(axis=1)\n"
        "        return self.y.__array_interface__",
    ),
    attack(
        "overrides every function",
        "wrong",
        "a subclass with `__array_function__` and `__array_ufunc__`",
        f"return ({SUM}).view(Mine)",
        "class Mine(np.ndarray):\n    def __array_function__(self, f, t, a, k): return self\n"
        "    def __array_ufunc__(self, u, m, *a, **k): return self",
    ),
    attack(
        "says that it is an array",
        "wrong",
        "an object whose `__class__` is a property that lies",
        "return Liar(x, scale)",
        LAZY + "class Liar(Lazy):\n    __class__ = property(lambda self: np.ndarray)",
    ),
    attack(
        "is named as an array",
        "pass",
        "a lazy class named `numpy.ndarray`: it is computed where it is read, before the answer",
        "return Lazy(x, scale)",
        LAZY + "Lazy.__module__, Lazy.__qualname__ = 'numpy', 'ndarray'",
    ),
    attack("a buffer", "wrong", "a memoryview", f"return memoryview({SUM})"),
    attack("a list", "wrong", "numbers in a list", f"return ({SUM}).tolist()"),
    attack("a masked array", "wrong", "a subclass of NumPy's own", f"return np.ma.array({SUM})"),
    attack(
        "backwards, read-only",
        "pass",
        "negative strides and no right to write: strange, and an array",
        f"y = ({SUM})[::-1].copy()[::-1]\ny.flags.writeable = False\nreturn y",
    ),
    attack("changes its input", "wrong", "zeroes a row before it reads", "x[0] = 0"),
    attack(
        "changes its input after use", "wrong", "zeroes all of it", f"y = {SUM}\nx[:] = 0\nreturn y"
    ),
    attack(
        "returns a view of its input",
        "wrong",
        "an output in the memory of the input",
        f"x[:, 0] = {SUM}\nreturn x[:, 0]",
    ),
    attack(
        "returns what it has not filled",
        "wrong",
        "`numpy.empty`, and then one value",
        "y = np.empty(len(x), np.float32)\ny[0] = 1\nreturn y",
    ),
)
