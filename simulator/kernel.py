"""The one decorator of compiled code, and where its compile cache lives.

numba's cache watches only the file of the outermost function, so an edited callee in another file would be served
stale. The cache folder is therefore named by a hash of all sources a kernel can reach: every file of `simulator/`
and, for policies, the files of the jitted functions and the values of the constants they use.
"""

import hashlib
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from numba import config
from numba.core.typing.templates import Signature

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


def _hash_simulator_sources() -> str:
    digest = hashlib.blake2b(f"numba {numba.__version__}".encode(), digest_size=8)
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
        yield
    finally:
        config.CACHE_DIR = before


# Kernels allocate nothing, so reference counts (a third of the time of small calls, and more) are left out.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False}


def kernel(function: Function) -> Function:
    """Compile an engine function on first use, inlined into its callers (nopython, cached on disk).

    A call that is not inlined copies the descriptors of all arrays: seven words each.
    """
    return _compile(function, forceinline=True)


def cold_kernel(function: Function) -> Function:
    """Compile an engine function that is rarely called, and keep it out of its callers."""
    return _compile(function, forceinline=False)


def _compile(function: Function, forceinline: bool) -> Function:
    if IS_JIT_DISABLED:
        return function
    with _cache_folder(cache_root() / SIMULATOR_HASH):
        return numba.njit(cache=True, forceinline=forceinline, **_OPTIONS)(function)


def policy_cache_folder(function: Callable[..., Any]) -> Path | None:
    """Return the cache folder of a policy, named by all it depends on; None for one typed at a prompt."""
    try:
        files, constants = _reachable(function)
        digest = hashlib.blake2b(SIMULATOR_HASH.encode(), digest_size=8)
        for path in sorted(files):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    except (OSError, TypeError):
        return None
    digest.update(repr(sorted(constants)).encode())
    return cache_root() / SIMULATOR_HASH / digest.hexdigest()


def _reachable(function: Callable[..., Any]) -> tuple[set[Path], set[str]]:
    """Return the source files of a function and of the jitted functions it names, and the plain constants it names."""
    files: set[Path] = set()
    constants: set[str] = set()
    pending, seen = [function], set()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        files.add(Path(inspect.getfile(current)))
        variables = inspect.getclosurevars(current)
        for name, value in {**variables.globals, **variables.nonlocals}.items():
            python_function = getattr(value, "py_func", value)
            if inspect.isfunction(python_function):
                if Path(inspect.getfile(python_function)).parent == SIMULATOR_FOLDER:
                    continue  # SIMULATOR_HASH covers it
                pending.append(python_function)
            elif isinstance(value, int | float | str | np.generic):
                constants.add(f"{name}={value!r}")
    return files, constants


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
