"""Freed memory stays with the process inside heap_kept, and goes back after it."""

import ctypes
import gc
import resource

import numpy as np
import pytest

from servegym.agents.heap import glibc, heap_kept

LARGE = 1024**3  # B, more than any free block there may be; never touched
SMALL = 3 * 1024**2  # B, below what NumPy asks huge pages for
LIBC = glibc()

needs_mallinfo2 = pytest.mark.skipif(
    not hasattr(LIBC, "mallinfo2"), reason="glibc before 2.33, or another C library"
)


class Mallinfo2(ctypes.Structure):
    """What glibc counts, mallinfo(3): hblks blocks mapped from the kernel one by one, arena bytes of the heap."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")
        + ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def counted() -> Mallinfo2:
    assert LIBC is not None
    LIBC.mallinfo2.restype = Mallinfo2
    return LIBC.mallinfo2()


def blocks_mapped_for_an_array() -> int:
    gc.collect()  # or it might unmap others in between
    before = counted().hblks
    array = np.empty(LARGE, np.uint8)
    mapped = counted().hblks - before
    del array
    return mapped


def faults_of_small_arrays() -> int:
    """Return the page faults of 20 arrays of 3 MiB, each filled and freed, when 20 others were before."""
    begin = 0
    for _ in range(2):
        begin = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(20):
            np.empty(SMALL, np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begin


@needs_mallinfo2
def test_large_blocks_come_from_a_heap_that_does_not_shrink():
    assert blocks_mapped_for_an_array() == 1
    before = counted().arena
    with heap_kept():
        assert blocks_mapped_for_an_array() == 0
        assert counted().arena - before > LARGE // 2
    assert counted().arena - before < LARGE // 2
    assert blocks_mapped_for_an_array() == 1


@needs_mallinfo2
def test_an_error_inside_passes_and_ends_it():
    with pytest.raises(KeyboardInterrupt), heap_kept():
        raise KeyboardInterrupt
    assert blocks_mapped_for_an_array() == 1


@needs_mallinfo2
def test_smaller_blocks_are_kept_after_it_as_glibc_does_by_itself():
    with heap_kept():
        pass
    # Were they handed back, all pages of all 20 would be faults.
    assert faults_of_small_arrays() < SMALL // resource.getpagesize()


@needs_mallinfo2
def test_without_glibc_nothing_is_done(monkeypatch):
    monkeypatch.setattr("servegym.agents.heap.glibc", lambda: None)
    with heap_kept():
        assert blocks_mapped_for_an_array() == 1
