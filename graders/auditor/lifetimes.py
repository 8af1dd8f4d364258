"""Source checks of how a process ends, what outlives a call, and what is written to whom."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from graders.auditor.base import AuditInput
from graders.auditor.hits import Hit
from graders.auditor.pysource import PySource
from graders.auditor.trees import walk
from graders.auditor.wires import PROOF, STRONG, WEAK, Wire, uses, wire

# --- how a process ends, and what outlives a call ----------------------------------------------

_PASSES = re.compile(r"\bPASS(ED)?\b|\"ok\"|all tests|\bcorrect\b.*true|\"result\"", re.IGNORECASE)


def _hard_exit(source: PySource, given: AuditInput) -> Iterator[Hit]:
    forks = any("os.fork" in names for _, names in source.touches)
    claims = any(_PASSES.search(text) for _, text in source.texts)
    pattern = r"os\.(_exit|abort)|signal\.(raise_signal|pthread_kill)|os\.kill(pg)?"
    for hit in uses(pattern, "the process ends here, whatever its caller does next")(source, given):
        strength = PROOF if claims else WEAK if forks else None
        why = hit.why + ("; a result is printed first" if claims else "")
        yield Hit(hit.place, hit.quote, why, hit.lines, strength=strength)


def _soft_exit(source: PySource, _: AuditInput) -> Iterator[Hit]:
    for statement in source.top_level():
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for node in walk(statement):
            if isinstance(node, ast.Call) and source.names.resolve(node.func) & _EXITS:
                yield source.hit(node, "the process ends while the module is being imported")


_EXITS = frozenset({"sys.exit", "builtins.exit", "builtins.quit", "builtins.SystemExit"})

_HANDLERS = r"signal\.(signal|setitimer|alarm|sigaction|set_wakeup_fd)|sys\.(settrace|setprofile)"
_HANDLERS += r"|sys\.(addaudithook|set_asyncgen_hooks)|threading\.(settrace|setprofile)"
_DETACHED = r"os\.(setsid|posix_spawnp?|spawn\w+)|_thread\.start_new_thread"


_FORKS = frozenset({"os.fork", "os.forkpty", "pty.fork"})
_SHARED = frozenset({"mmap.mmap", "multiprocessing.shared_memory.SharedMemory"})


def _forks(source: PySource, _: AuditInput) -> Iterator[Hit]:
    """A fork that something waits for is parallelism; another outlives its call."""
    waited = any(name.startswith("os.wait") for _, names in source.touches for name in names)
    shared = any(names & _SHARED for _, names in source.calls)
    for node, names in source.calls:
        if names & _FORKS:
            yield source.hit(
                node,
                "a forked process writes to shared memory and is not waited for"
                if shared and not waited
                else "a process is forked" + ("" if waited else " and not waited for"),
                mechanism="timing:late-write" if shared and not waited else None,
                strength=WEAK if waited else PROOF,
            )


def _children(source: PySource, _: AuditInput) -> Iterator[Hit]:
    waits = _method_names(source) & {"wait", "communicate", "poll", "__exit__"}
    methods = _method_names(source)
    for node, names in source.calls:
        if "subprocess.Popen" in names:
            detached = any(k.arg in ("start_new_session", "preexec_fn") for k in node.keywords)
            if detached or not (waits or _is_context(source, node)):
                yield source.hit(node, "a process is started that nothing waits for")
        elif "multiprocessing.Process" in names and "join" not in methods:
            yield source.hit(node, "a process is started that nothing joins")


_THREADS = frozenset({"threading.Thread", "threading.Timer"})
_POOLS = frozenset(
    {"concurrent.futures.ThreadPoolExecutor", "concurrent.futures.thread.ThreadPoolExecutor"}
    | {"concurrent.futures.ProcessPoolExecutor", "multiprocessing.pool.ThreadPool"}
)


def _threads(source: PySource, _: AuditInput) -> Iterator[Hit]:
    """Threads that nobody joins; a pool whose results are awaited is honest parallelism."""
    methods = _method_names(source)
    for node, names in source.calls:
        if names & _THREADS and "join" not in methods:
            yield source.hit(node, "a thread is started that nothing joins: it outlives the call")
        elif names & _POOLS and methods & {"submit", "apply_async", "map_async"}:
            awaited = methods & {"result", "shutdown", "wait", "as_completed", "join", "get"}
            joined = any(
                n & {"concurrent.futures.wait", "concurrent.futures.as_completed"}
                for _, n in source.calls
            )
            if not (awaited or joined or _is_context(source, node)):
                yield source.hit(node, "work is given to a pool and its results are never awaited")
    for part in source.nodes:
        bases = part.bases if isinstance(part, ast.ClassDef) and "join" not in methods else []
        if any(source.names.resolve(base) & _THREADS for base in bases):
            yield source.hit(part, "a thread class whose instances nothing joins")


def _method_names(source: PySource) -> frozenset[str]:
    return frozenset(
        node.func.attr
        for node in source.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        # "x".join(...) waits for nothing
        and not (node.func.attr == "join" and source.names.strings(node.func.value))
        and "os.path.join" not in source.names.resolve(node.func)
    )


@lru_cache(maxsize=8)
def _contexts(source: PySource) -> frozenset[ast.AST]:
    return frozenset(n.context_expr for n in source.nodes if isinstance(n, ast.withitem))


def _is_context(source: PySource, call: ast.Call) -> bool:
    return call in _contexts(source)


# --- descriptors -------------------------------------------------------------------------------

_FD_WRITERS = frozenset({"os.write", "os.writev", "os.pwrite", "os.sendfile", "os.fdopen"})
_FD_WRITERS |= {
    "socket.socket",
    "socket.fromfd",
    "builtins.open",
    "io.open",
    "os.dup2",
    "io.FileIO",
}


def _descriptors(source: PySource, _: AuditInput) -> Iterator[Hit]:
    """Writes to descriptors by number: the submission opened none of them."""
    for node, names in source.calls:
        named = names & _FD_WRITERS
        if not named:
            continue
        fileno = next((k.value for k in node.keywords if k.arg == "fileno"), None)
        argument = fileno if fileno is not None else node.args[0] if node.args else None
        if "socket.socket" in named and fileno is None:
            continue
        if "os.dup2" in named and len(node.args) > 1:
            argument = node.args[1]
        if argument is not None and _is_foreign_fd(source, argument):
            yield source.hit(node, "a descriptor that the submission did not open is written to")


def _is_foreign_fd(source: PySource, node: ast.expr) -> bool:
    values = source.names.values(node)
    if any(
        isinstance(value, int) and not isinstance(value, bool) and value > 2 for value in values
    ):
        return True
    if isinstance(node, ast.Name):
        for binding in source.names.bindings(node.id, node):
            source_of = binding.iterates
            if isinstance(source_of, ast.Call):
                called = source.names.resolve(source_of.func)
                if called & {"builtins.range", "os.listdir", "itertools.count"}:
                    return True
    return isinstance(node, ast.Call) and "builtins.int" in source.names.resolve(node.func)


LIFETIMES: tuple[Wire, ...] = (
    wire("hard-exit", "tamper:exit", STRONG, _hard_exit),
    wire("exit-at-import", "tamper:exit", STRONG, _soft_exit),
    wire("exit-hook", "tamper:exit", WEAK, uses(r"atexit\.register", "code runs at exit")),
    wire("signal-handler", "tamper:exit", STRONG, uses(_HANDLERS, "code runs behind its caller")),
    wire("detached", "process:left-behind", STRONG, uses(_DETACHED, "a life beside the call's")),
    wire("fork", "process:left-behind", PROOF, _forks),
    wire("child-process", "process:left-behind", STRONG, _children),
    wire("unjoined-thread", "timing:late-write", STRONG, _threads),
    wire("descriptor-write", "tamper:report", PROOF, _descriptors),
)
"""Checks of exits, of children and threads, and of descriptors."""
