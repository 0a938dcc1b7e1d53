"""One source, two ways to run it: compiled by numba, or as it stands in plain Python.

The kernels are ordinary functions of this package. For a compiled run their sources are written, without
annotations, into one module in the user's cache folder, in a directory named by a hash of all of them, so that
numba's own cache there can never serve an older edit. Hooks reach the compiled loop as function pointers of a fixed
signature: the loop compiles once, whatever the policy.
"""

from __future__ import annotations

__all__ = [
    "Kernels",
    "bound_decision",
    "cache_root",
    "compiled_kernels",
    "fresh_plain_kernels",
    "hook_for",
    "plain_kernels",
]

import ast
import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import platform
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tileq_engine.cluster.records import CLUSTER_FIELDS, NODE_FIELDS, PLACE_FIELDS, POOL_FIELDS, RULE_SETS
from tileq_engine.records import REQUEST_FIELDS, SCALAR_FIELDS, SLOT_FIELDS, record_dtype

CACHE_VARIABLE = "TILEQ_CACHE_DIR"
HOOK_KINDS = ("decodes", "order", "mixing", "admission", "eviction")
_MODULES = (
    "clock",
    "prefix_tree",
    "prefix_lru",
    "fairness",
    "batch",
    "pressure",
    "rules.decodes",
    "rules.order",
    "rules.admission",
    "rules.eviction",
    "rules.mixing.chunked",
    "rules.mixing.in_order",
    "rules.mixing.exclusive",
    "rules.mixing.static",
    "rules.mixing.rad",
    "rules.mixing.tiles",
    "rules.mixing.threshold",
    "rules.mixing.wait",
    "rules.mixing.smallest",
    "simulator_record",
    "simulator_check",
    "simulator_step",
    "simulator_jump",
    "simulator_iteration",
    "simulator_loop",
    "simulator_single_loop",
    "scheduler_kernels",
    "cluster.trees",
    "cluster.node",
    "cluster.touch",
    "cluster.routing",
    "cluster.stranding",
    "cluster.placing",
    "cluster.handing",
    "cluster.failing",
    "cluster.loop",
    "cluster.entry",
)
_ENTRY_POINTS = ("run_until", "run_single", "announce_at", "decide_at", "complete_at", "lru_pass", "simulate_nodes")
_CLUSTER_RECORDS = (CLUSTER_FIELDS, NODE_FIELDS, POOL_FIELDS, PLACE_FIELDS)
_HOOK_PREFIXES = ("decodes_", "order_", "admit_", "evict_", "mix_")
# numba counts references of every array passed to a function, by atomic instructions: 60 % of the loop's time. The
# kernels allocate nothing and their caller holds all arrays, so there is nothing to count.
_UNCOUNTED: dict[str, Any] = {"nogil": True, "_nrt": False}
_NOT_KERNELS = frozenset({"coefficients", "to_ps", "to_seconds"})


def cache_root() -> Path:
    """Return the folder for compiled code: $TILEQ_CACHE_DIR, else the platform's per-user cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tileq"


class Kernels:
    """A namespace of kernels: `kernels["run_until"]` is the compiled or the plain function of that name."""

    def __init__(self, functions: dict[str, Any], compiled: bool) -> None:
        self.functions = functions
        self.compiled = compiled

    def __getitem__(self, name: str) -> Any:
        return self.functions[name]

    def __contains__(self, name: str) -> bool:
        return name in self.functions


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"tileq_engine.{name}")


@functools.cache
def _sources() -> str:
    """Return the kernels' source as one module: functions decorated for numba, and the constants they use."""
    parts = ["from __future__ import annotations", "import math", "from numba import njit"]
    for name in _MODULES:
        tree = ast.parse(inspect.getsource(_module(name)))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name not in _NOT_KERNELS:
                parts.append(_stripped(node))
            elif isinstance(node, ast.Assign) and _is_constant(node):
                parts.append(ast.unparse(node))
    return "\n\n".join(parts) + "\n"


def _is_constant(node: ast.Assign) -> bool:
    target = node.targets[0]
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    return all(isinstance(n, ast.Name) and n.id.startswith("_") and n.id != "__all__" for n in names)


def _stripped(node: ast.FunctionDef) -> str:
    node.returns = None
    for arg in node.args.args:
        arg.annotation = None
    if ast.get_docstring(node) is not None:
        node.body = node.body[1:] or [ast.Pass()]
    wrappers = ""  # that nobody calls cost a third of the first compilation
    if node.name not in _ENTRY_POINTS:
        wrappers += ", no_cpython_wrapper=True"
    if not node.name.startswith(_HOOK_PREFIXES):
        wrappers += ", no_cfunc_wrapper=True"
    options = "".join(f", {name}={value}" for name, value in _UNCOUNTED.items())
    return f"@njit(cache=True, error_model='numpy'{options}{wrappers})\n" + ast.unparse(node)


def _write_module(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tileq_kernels.py"
    if not path.exists():
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(temporary).replace(path)
    return path


def _kernel_file(text: str) -> Path:
    import numba
    import numpy as np

    fields = (REQUEST_FIELDS, SLOT_FIELDS, SCALAR_FIELDS, *_CLUSTER_RECORDS)
    stamp = "\n".join((text, repr(fields), numba.__version__, np.__version__))
    digest = hashlib.sha256((stamp + platform.python_version() + platform.machine()).encode()).hexdigest()[:16]
    try:
        return _write_module(cache_root() / f"kernels-{digest}", text)
    except OSError:  # a read-only home: compile for this process alone
        return _write_module(Path(tempfile.mkdtemp(prefix="tileq-")) / f"kernels-{digest}", text)


@functools.cache
def _signatures() -> dict[str, Any]:
    """Return numba signatures of the five hooks and of the entry points."""
    from numba import float64, from_dtype, int64, types, void

    R, B, S = (from_dtype(record_dtype(f))[::1] for f in (REQUEST_FIELDS, SLOT_FIELDS, SCALAR_FIELDS))
    I = int64[::1]  # noqa: E741
    hooks = {
        "decodes": int64(R, B, S, I, I, I),
        "order": float64(R, S, I, int64),
        "admission": int64(R, B, S, I, int64),
        "eviction": int64(R, B, S, I, I, int64),
    }
    t = {kind: types.FunctionType(signature) for kind, signature in hooks.items()}
    hooks["mixing"] = void(R, B, S, I, I, I, I, t["decodes"], t["order"], t["admission"], t["eviction"])
    t["mixing"] = types.FunctionType(hooks["mixing"])
    five = (t["decodes"], t["order"], t["mixing"], t["admission"], t["eviction"])
    entry = {
        "run_until": int64(R, B, S, I, I, I, I, I, I, I, I, I, I, I, *five),
        "announce_at": int64(R, S, int64),
        "run_single": int64(S, I, I, I, I, I),
        "lru_pass": int64(I, I, I, I, I, I, int64),
        "decide_at": int64(R, B, S, I, I, I, I, I, int64, *five),
        "complete_at": int64(R, B, S, I, I, I, I, I, I, I, int64),
        "simulate_nodes": _nodes_signature(R, B, S, five),
    }
    return {**hooks, **entry}


def _nodes_signature(requests: Any, slots: Any, scalars: Any, hooks: tuple[Any, ...]) -> Any:
    """Return the signature of the cluster's entry: the engine's arrays, the cluster's, and the sets of rules."""
    from numba import float64, from_dtype, int64

    I, F = int64[::1], float64[::1]  # noqa: E741
    records = tuple(from_dtype(record_dtype(fields))[::1] for fields in _CLUSTER_RECORDS)
    own = (*records, I, I, I, F, I, I, I, I, I)
    return int64(requests, slots, scalars, *(12 * (I,)), *own, *(RULE_SETS * hooks))


_LOCK = threading.RLock()


@functools.cache
def compiled_kernels() -> Kernels:
    """Return the compiled namespace; each function compiles at its first use, or comes from the cache."""
    with _LOCK:
        path = _kernel_file(_sources())
        spec = importlib.util.spec_from_file_location(f"tileq_kernels_{path.parent.name[8:]}", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load the kernels from {path}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # numba's cache looks the module up by name
        spec.loader.exec_module(module)
        return Kernels({name: value for name, value in vars(module).items() if not name.startswith("__")}, True)


@functools.cache
def plain_kernels() -> Kernels:
    """Return the same functions as they stand, calling each other, in plain Python."""
    return fresh_plain_kernels()


def fresh_plain_kernels() -> Kernels:
    """Return plain kernels in a namespace of their own, in which one may be replaced."""
    space: dict[str, Any] = {}
    for name in _MODULES:
        module = _module(name)
        for key, value in vars(module).items():
            raw = inspect.unwrap(value) if callable(value) else value
            if isinstance(raw, FunctionType) and raw.__module__ == module.__name__:
                space[key] = raw
            elif not key.startswith("__") and (isinstance(value, int | float | ModuleType)):
                space[key] = value
    space["__builtins__"] = __builtins__
    for key, raw in list(space.items()):
        if isinstance(raw, FunctionType):
            space[key] = FunctionType(raw.__code__, space, key, raw.__defaults__, raw.__closure__)
    return Kernels(space, False)


def _fixed(function: Any, signature: Any) -> Any:
    """Compile `function` for `signature` alone: called with hooks, numba would otherwise specialise it on each."""
    if signature.args not in function.overloads:
        with warnings.catch_warnings():  # numba calls functions as arguments experimental where they stand in tuples
            warnings.filterwarnings("ignore", message="First-class function type feature is experimental")
            function.compile(signature)
        function.disable_compile()
    return function


def entry_point(name: str) -> Any:
    """Return the compiled entry point `name`, compiled for its one signature."""
    with _LOCK:
        function = compiled_kernels()[name]
        signature = _signatures()[name]
        return _fixed(function, signature)


@functools.lru_cache(maxsize=64)
def bound_decision(decide: Any, hooks: tuple[Any, ...]) -> Any:
    """Return `decide_at` with its hooks fixed, compiled: passing five function pointers from Python costs 25 us."""
    from numba import njit

    decodes, order, mixing, admission, eviction = hooks

    def decision(R: Any, B: Any, S: Any, H: Any, O: Any, W: Any, P: Any, X: Any, now: Any) -> Any:  # noqa: E741
        return decide(R, B, S, H, O, W, P, X, now, decodes, order, mixing, admission, eviction)

    return njit(**_UNCOUNTED)(inspect.unwrap(decision))


def hook_for(kind: str, rule: str | Callable[..., Any], kernels: Kernels) -> Any:
    """Return the rule of `kind` (a kernel's name, or a user's function) ready to be passed to `kernels`' loop.

    A user's function is compiled with the kernels it calls replaced by their compiled forms; what numba says when
    it cannot is raised as it is, for the caller to fall back on plain Python.
    """
    if not kernels.compiled:
        if isinstance(rule, str):
            return kernels[rule]
        return _numeric(_bound(rule, kernels)) if kind == "order" else _bound(rule, kernels)
    with _LOCK:
        function = kernels[rule] if isinstance(rule, str) else _compiled_user_rule(rule)
        signature = _signatures()[kind]
        return _fixed(function, signature)


def _bound(rule: Callable[..., Any], kernels: Kernels) -> Callable[..., Any]:
    """Return the user's function with the package's kernels among its globals replaced by those of `kernels`."""
    raw = inspect.unwrap(rule)
    if not isinstance(raw, FunctionType):
        return rule
    space = dict(raw.__globals__)
    for key, value in raw.__globals__.items():
        origin = getattr(value, "__module__", None) or ""
        if callable(value) and origin.startswith("tileq_engine.") and getattr(value, "__name__", "") in kernels:
            space[key] = kernels[value.__name__]
    return FunctionType(raw.__code__, space, raw.__name__, raw.__defaults__, raw.__closure__)


@functools.lru_cache(maxsize=256)
def _compiled_user_rule(rule: Callable[..., Any]) -> Any:
    from numba import njit

    # as Python has it: a division by zero or an index out of range raises, compiled or not
    return njit(nogil=True, error_model="python", boundscheck=True)(_bound(rule, compiled_kernels()))


def _numeric(rule: Callable[..., Any]) -> Callable[..., float]:
    """Return an order rule whose answers are numbers, as they are when it is compiled."""

    def numeric(R: Any, S: Any, P: Any, i: Any) -> float:  # a whole number of Python or of numpy
        return float(rule(R, S, P, i))

    return numeric
