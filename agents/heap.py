"""heap_kept: memory that is freed stays with the process while networks are trained.

A minibatch allocates tensors of more than 32 MiB. glibc takes such blocks from the kernel and hands them back at once,
so that each of their pages is mapped and cleared anew for every minibatch. Kept, PPO trains bit for bit the same in
less time, for more memory. Elsewhere than on glibc nothing is changed.

mallopt(3): https://man7.org/linux/man-pages/man3/mallopt.3.html
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # glibc's malloc.h
NEVER = -1  # of the trim threshold
# Thresholds move with what is freed until they are set, then no more: set where glibc would end.
MMAP_BYTES, TRIM_BYTES = 32 * 1024**2, 64 * 1024**2
MMAP_BLOCKS = 65_536  # glibc's default


@contextmanager
def heap_kept() -> Iterator[None]:
    """Keep freed memory for the next allocation; what is free at the end goes back to the kernel.

    It is the whole process that is set, whatever MALLOC_ variables of the environment say; not to be nested. Blocks
    above 64 MiB of threads other than the main one are still mapped one by one.
    """
    libc = glibc()
    if libc is None:
        yield
        return
    try:
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)
        yield
    finally:
        libc.mallopt(M_MMAP_MAX, MMAP_BLOCKS)
        libc.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)
        libc.malloc_trim(0)


def glibc() -> ctypes.CDLL | None:
    """Return the C library of this process if it is glibc."""
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return libc if hasattr(libc, "gnu_get_libc_version") else None
