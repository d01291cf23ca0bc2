"""The one decorator of compiled code, and where its compile cache lives.

numba's cache watches only the file of the outermost function, so an edited callee in another file would be served
stale. The cache folder is therefore named by a hash of all sources a kernel can reach: every file of `simulator/`
and, for policies, the code of the functions and the values of the constants they use.
"""

import hashlib
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

import numba
import numpy as np
from numba import config as numba_config
from numba.core.typing.templates import Signature

config: Any = numba_config  # its attributes are made at run time
IS_JIT_DISABLED = bool(config.DISABLE_JIT)
Function = TypeVar("Function", bound=Callable[..., Any])

SIMULATOR_FOLDER = Path(__file__).resolve().parent


def cache_root() -> Path:
    """Return the folder of all compile caches: SERVEGYM_CACHE_DIR, else the user's cache folder."""
    chosen = os.environ.get("SERVEGYM_CACHE_DIR")
    if chosen:
        return Path(chosen)
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user_cache) / "servegym"


# The attribute with the text that changes with what is no function of Python: code written for LLVM, or a layout.
CACHED_BY = "cached_by"

# What a kernel may name without making its cache depend on it: versions stand in SIMULATOR_HASH.
COVERED = {"builtins", "math", "cmath", "operator", "numpy", "numba"}


def _hash_simulator_sources() -> str:
    digest = hashlib.blake2b(
        f"numba {numba.__version__} numpy {np.__version__}".encode(), digest_size=8
    )
    digest.update(f"boundscheck {config.BOUNDSCHECK}".encode())
    for path in sorted(SIMULATOR_FOLDER.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


SIMULATOR_HASH = _hash_simulator_sources()


@contextmanager
def _cache_folder(folder: Path) -> Iterator[None]:
    """Let numba place the cache of what is decorated inside the block in `folder`."""
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"cannot make the compile cache {folder} ({error.strerror}); "
            "set SERVEGYM_CACHE_DIR to a folder that can be written"
        ) from None
    try:
        yield
    finally:
        config.CACHE_DIR = before


# Kernels allocate nothing, so reference counts (a third of the time of small calls, and more) are left out.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}


def kernel(function: Function) -> Function:
    """Compile an engine function on first use, inlined into its callers (nopython, cached on disk).

    A call that is not inlined hands on the state as one word, but copies a policy's `cluster`: seven words an array.
    """
    return _compile(function, forceinline=True)


def cold_kernel(function: Function) -> Function:
    """Compile an engine function that is rarely called, and keep it out of its callers."""
    return _compile(function, forceinline=False)


def _compile(function: Callable[..., Any], forceinline: bool) -> Any:
    if IS_JIT_DISABLED:
        return function
    is_engine = Path(inspect.getfile(function)).parent == SIMULATOR_FOLDER
    folder = cache_root() / SIMULATOR_HASH if is_engine else policy_cache_folder(function)
    if folder is None:
        return numba.njit(forceinline=forceinline, **_OPTIONS)(function)
    with _cache_folder(folder):
        return numba.njit(cache=True, forceinline=forceinline, **_OPTIONS)(function)


def policy_cache_folder(function: Callable[..., Any]) -> Path | None:
    """Return the cache folder of code outside the engine, named by all it depends on: code as loaded, constants.

    None if that cannot be told: typed at a prompt, or it uses something other than functions and constants.
    """
    digest = hashlib.blake2b(SIMULATOR_HASH.encode(), digest_size=8)
    try:
        functions = reachable_functions(function)
        if not all(Path(inspect.getfile(each)).is_file() for each in functions):
            return None
        texts = [_constant(item) for each in functions for item in names_of(each)]
        texts += [_code_text(code) for each in functions for code in codes_of(each)]
    except (OSError, TypeError):
        return None
    for text in sorted(texts):
        digest.update(text.encode() + b"\0")
    return cache_root() / SIMULATOR_HASH / digest.hexdigest()


def reachable_functions(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Return a function and those it names, directly or through others, that lie outside the engine."""
    found: list[Callable[..., Any]] = []
    pending = [function]
    while pending:
        current = pending.pop()
        if current not in found:
            found.append(current)
            values = [getattr(value, "py_func", value) for _, value in names_of(current)]
            pending += [
                value for value in values if inspect.isfunction(value) and not _is_engine(value)
            ]
    return found


def codes_of(function: Callable[..., Any]) -> list[CodeType]:
    """Return the code of a function and of the functions defined inside it."""
    found = [function.__code__]
    for code in found:
        found += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


def names_of(function: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Return the globals and enclosing variables that a function names, with their values."""
    variables = list(inspect.getclosurevars(function).nonlocals.items())
    for code in codes_of(function):
        known = [name for name in code.co_names if name in function.__globals__]
        variables += [(name, function.__globals__[name]) for name in known]
    return variables


def _code_text(code: CodeType) -> str:
    """Return a text that changes with what the code does; constants that are code are told apart elsewhere."""
    constants = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
    return repr((code.co_name, code.co_code, code.co_names, code.co_varnames, constants))


def _is_engine(value: Any) -> bool:
    """Return whether SIMULATOR_HASH covers a function, class or module, or it comes with Python or numba."""
    name = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
    return (bool(name) and name.split(".")[0] in COVERED) or f"{name}.".startswith(
        "servegym.simulator."
    )


def _constant(item: tuple[str, Any]) -> str:
    """Return a text that changes with the value of a name; TypeError if there is none."""
    name, value = item
    if isinstance(value, np.ndarray):
        return f"{name}={value.dtype}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, tuple | frozenset):
        return f"{name}=({','.join(_constant((name, part)) for part in value)})"
    if value is None or isinstance(value, int | float | complex | str | bytes | np.generic):
        return f"{name}={value!r}"
    if hasattr(value, CACHED_BY):
        return f"{name}={getattr(value, CACHED_BY)}"
    if hasattr(value, "py_func") or inspect.isfunction(value) or _is_engine(value):
        return name
    raise TypeError(f"{name} is a {type(value).__name__}")


def compile_policy(function: Callable[..., Any], signature: Signature) -> Any:
    """Return a compiled cfunc of the policy; its `.address` is what the state holds."""
    folder = policy_cache_folder(function)
    if folder is None:
        return numba.cfunc(signature, **_OPTIONS)(function)
    with _cache_folder(folder):
        return numba.cfunc(signature, cache=True, **_OPTIONS)(function)


def compile_entry(function: Callable[..., Any], signature: Signature) -> Any:
    """Return a cfunc of an engine function, cached with the engine."""
    with _cache_folder(cache_root() / SIMULATOR_HASH):
        return numba.cfunc(signature, cache=True, **_OPTIONS)(function)
