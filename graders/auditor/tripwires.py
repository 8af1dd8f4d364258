"""Source checks that ask what a submission touches: modules, memory, other code's variables.

Each row of ``TRIPWIRES`` is one check. A strike is evidence, not a verdict: what strikes only where
no honest kernel goes is a proof, what honest code seldom needs is strong, the rest is weak.
"""

import ast
import re
from collections.abc import Callable, Iterator

from graders.auditor.base import AuditInput
from graders.auditor.hits import Hit
from graders.auditor.pysource import PySource, Store
from graders.auditor.trees import walk
from graders.auditor.wires import PROOF, STRONG, WEAK, Wire, uses, wire

# --- stores onto what others use ---------------------------------------------------------------

_COMPARERS = re.compile(
    r"numpy(\.core|\._core|\.testing)?(\.numeric|\.\w+)?\."
    r"(allclose|isclose|array_equal|array_equiv|assert_\w+|isfinite|isnan|abs|absolute|max|amax"
    r"|all|any|subtract|square|mean|sqrt)"
    r"|torch(\.testing)?\.(allclose|isclose|equal|assert_close|\w*compare\w*)"
    r"|math\.(isclose|isfinite|isnan)|builtins\.(all|any|abs|max|min|isinstance)"
)
_GUARDED = frozenset(
    {"numpy", "torch", "triton", "math", "os", "socket", "struct", "json", "gc", "hashlib"}
    | {"random", "threading", "__main__", "builtins", "sys", "mmap", "io", "array", "ctypes"}
)
_OWN_BUSINESS = re.compile(
    # a process's own streams, search path and hooks; the compatibility aliases that NumPy dropped
    r"sys\.(stdout|stderr|stdin|path|argv|dont_write_bytecode|excepthook|displayhook|tracebacklimit)"
    r"|numpy\.(int|float|bool|object|str|complex|long|unicode|float_|infty|Inf|NaN)"
    r"|.*\.__(module|doc|name|qualname|wrapped|signature)__"
    r"|os\.environ.*|sys\.modules\[.*|ctypes\.\w+\..*|torch\.backends\..*"
)


def _stores(source: PySource, wanted: Callable[[str], bool], why: str) -> Iterator[Hit]:
    for store in source.stores:
        for target in sorted(store.targets):
            if wanted(target):
                certain = not target.endswith(".?")  # which attribute is written, is not known
                strength = None if certain else STRONG
                yield source.hit(store.node, why.format(target=target), strength=strength)
                break


def _is_clock(target: str) -> bool:
    return target.startswith(("time.", "datetime.")) and target != "time.clock"


def _is_comparer(target: str) -> bool:
    return bool(_COMPARERS.fullmatch(target))


def _is_runtime(target: str) -> bool:
    root, *rest = target.split(".")
    if root == "builtins" and len(rest) > 1:
        return False  # built-in types take no attributes: a name with a default is meant
    return (
        root in _GUARDED
        and "." in target
        and not _OWN_BUSINESS.fullmatch(target)
        and not _is_comparer(target)
    )


def _patched_clock(source: PySource, _: AuditInput) -> Iterator[Hit]:
    return _stores(source, _is_clock, "`{target}` is replaced: every clock read later lies")


def _patched_comparison(source: PySource, _: AuditInput) -> Iterator[Hit]:
    return _stores(source, _is_comparer, "`{target}` is replaced: comparisons through it lie")


def _patched_runtime(source: PySource, _: AuditInput) -> Iterator[Hit]:
    return _stores(source, _is_runtime, "`{target}` is rebound for everybody in the process")


def _module_table(source: PySource, given: AuditInput) -> Iterator[Hit]:
    own = {path.removesuffix(".py").replace("/", ".") for path in given.files}
    for store in source.stores:
        for target in store.targets:
            name = target.removeprefix("sys.modules[").removesuffix("]")
            if target.startswith("sys.modules[") and name not in own and not _is_local(name, given):
                known = name in _GUARDED or name in ("time", "graders", "worker", "numpy.testing")
                yield source.hit(
                    store.node,
                    f"an entry of `sys.modules` ({name}) is replaced",
                    strength=PROOF if known and _gives_value(store) else WEAK,
                )


def _gives_value(store: Store) -> bool:
    return not (isinstance(store.value, ast.Constant) and store.value.value is None)


def _is_local(name: str, given: AuditInput) -> bool:
    return name.split(".", maxsplit=1)[0] in {
        path.split("/")[0].split(".")[0] for path in given.files
    }


# --- uses of what a kernel has no use for ------------------------------------------------------


_FRAME = r"sys\._getframe|inspect\.(currentframe|stack|trace|getouterframes|getinnerframes)"
_FRAME += r"|traceback\.(walk_stack|extract_stack)|sys\._current_frames"


def _frames(source: PySource, given: AuditInput) -> Iterator[Hit]:
    attributes = {node.attr for node in source.nodes if isinstance(node, ast.Attribute)}
    strings = {text for _, text in source.texts}
    words = attributes | strings
    reads = words & {"f_locals", "f_globals", "f_builtins"}
    walks = words & {"f_back", "tb_frame"}
    starts = list(uses(_FRAME, "frames of callers are looked at")(source, given))
    deep = PROOF if reads and (walks or starts) else None
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr in reads | walks and deep:
            yield source.hit(node, f"`.{node.attr}`: variables of callers are read", strength=PROOF)
    for hit in starts:
        yield Hit(hit.place, hit.quote, hit.why, hit.lines, strength=deep)


def _gc(source: PySource, given: AuditInput) -> Iterator[Hit]:
    looks_for_arrays = any(
        "builtins.isinstance" in names
        and len(node.args) == 2
        and source.names.resolve(node.args[1]) & {"numpy.ndarray", "torch.Tensor"}
        for node, names in source.calls
    ) or any(text == "ndarray" for _, text in source.texts)
    pattern = r"gc\.(get_objects|get_referrers|get_referents)"
    for hit in uses(pattern, "every object of the process is within reach")(source, given):
        yield Hit(
            hit.place, hit.quote, hit.why, hit.lines, strength=PROOF if looks_for_arrays else None
        )


_PROC_HARMLESS = re.compile(r"/proc/(cpuinfo|meminfo|loadavg|stat|self/(status|statm|stat|io))")
_PROC_MEMORY = re.compile(r"/proc/.*(mem|maps|pagemap)$|/dev/(mem|kmem)")


_OPENERS = re.compile(r"builtins\.open|(os|io|pathlib|glob|mmap|numpy|shutil|codecs)\.")


def _is_proc(text: str) -> bool:
    return text.startswith(("/proc/", "/dev/mem")) and not _PROC_HARMLESS.fullmatch(text)


def _proc(source: PySource, _: AuditInput) -> Iterator[Hit]:
    for node, names in source.calls:
        if not any(_OPENERS.match(name) for name in names):
            continue
        text = next((t for a in node.args for t in source.texts_behind(a) if _is_proc(t)), None)
        if text is not None:
            strength = PROOF if text == "/proc/self/mem" else None
            what = "memory" if _PROC_MEMORY.match(text) else "processes"
            yield source.hit(node, f"{what} are read through `{text}`", strength=strength)


# --- who is asking -----------------------------------------------------------------------------

_JUDGES = re.compile(r"referee|grader|grading|kernel_orchestrator|evaluator", re.IGNORECASE)
_MAYBE = re.compile(r"\bpytest\b|unittest|^worker$|worker\.py|harness|benchmark", re.IGNORECASE)
_PLACES = re.compile(
    r"sys\.(argv|modules|orig_argv|_getframe).*|os\.(environ|getenv|getppid).*|inspect\.\w+"
    r"|__main__\.__file__|traceback\.\w+|multiprocessing\.current_process.*|sys\.path"
)


def _detection(source: PySource, _: AuditInput) -> Iterator[Hit]:
    """A comparison of a grader's name with what the process knows about its caller."""
    for node in source.nodes:
        if isinstance(node, ast.Compare):
            parts: list[ast.expr] = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            parts = [node.func.value, *node.args]
            if node.func.attr not in _ASKS and not _touches(source, node.func, _PLACES):
                continue
        else:
            continue
        texts = [text for part in parts for text in source.names.strings(part)]
        if not any(_touches(source, part, _PLACES) for part in [*parts, node]):
            continue
        if any(_JUDGES.search(text) for text in texts):
            yield source.hit(node, "the code asks whether a grader runs it", strength=PROOF)
        elif any(_MAYBE.search(text) for text in texts):
            yield source.hit(node, "the code asks who runs it")


_ASKS = frozenset({"startswith", "endswith", "find", "count", "index", "get", "__contains__"})


def _touches(source: PySource, node: ast.AST, pattern: re.Pattern[str]) -> bool:
    return any(
        pattern.fullmatch(name)
        for part in walk(node)
        if isinstance(part, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
        for name in source.names.resolve(part)
    )


# --- memory by address, hidden code ------------------------------------------------------------

_BY_ADDRESS = frozenset(f"ctypes.{name}" for name in ("string_at", "memmove", "memset", "cast"))
_FOREIGN_CALLS = frozenset({"process_vm_readv", "process_vm_writev", "ptrace", "mprotect"})


def _memory(source: PySource, _: AuditInput) -> Iterator[Hit]:
    for node, names in source.calls:
        attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if attribute in _FOREIGN_CALLS:
            yield source.hit(node, f"`{attribute}`: memory of other code is changed or read")
        elif names & _BY_ADDRESS or attribute == "from_address":
            parts = [part for argument in node.args[:2] for part in walk(argument)]
            if any(_is_raw_address(source, part) for part in parts):
                yield source.hit(node, "memory is reached by an address made up from a number")


def _is_raw_address(source: PySource, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    names = source.names.resolve(node.func)
    return "builtins.id" in names or ("builtins.int" in names and len(node.args) == 2)


_DECODERS = re.compile(
    r"(base64|codecs|zlib|bz2|lzma|marshal|binascii|gzip)\.(\w*decode\w*|decompress|loads|unhexlify)"
)


def _hidden_code(source: PySource, _: AuditInput) -> Iterator[Hit]:
    for node, names in source.calls:
        if not names & {"builtins.exec", "builtins.eval", "builtins.compile"} or not node.args:
            continue
        if any(_touches(source, part, _DECODERS) for part in walk(node.args[0])):
            yield source.hit(node, "code is decoded from data and executed")


TRIPWIRES: tuple[Wire, ...] = (
    wire("patched-clock", "timing:patched-clock", PROOF, _patched_clock),
    wire("patched-comparison", "tamper:comparison", PROOF, _patched_comparison),
    wire("patched-runtime", "tamper:runtime", PROOF, _patched_runtime),
    wire("module-table", "tamper:runtime", PROOF, _module_table),
    wire("frame-walk", "introspection:frames", STRONG, _frames),
    wire("gc-scan", "introspection:gc", STRONG, _gc),
    wire("proc-read", "introspection:proc", STRONG, _proc),
    wire("grader-detection", "tamper:detection", WEAK, _detection),
    wire("raw-memory", "introspection:memory", STRONG, _memory),
    wire("hidden-code", "delegation:obfuscated", STRONG, _hidden_code),
)
"""Checks of what is touched."""
