"""Freed memory stays with the process inside heap_kept, and only there."""

import ctypes

import numpy as np
import pytest

from servegym.agents.heap import glibc, heap_kept

LARGE = 1024**3  # B, more than any free block there may be; never touched


class Mallinfo2(ctypes.Structure):
    """What glibc counts, mallinfo(3): hblks blocks mapped from the kernel one by one, arena bytes of the heap."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")
        + ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def counted() -> Mallinfo2:
    libc = glibc()
    assert libc is not None
    libc.mallinfo2.restype = Mallinfo2
    return libc.mallinfo2()


def blocks_mapped_for_an_array() -> int:
    before = counted().hblks
    array = np.empty(LARGE, np.uint8)
    mapped = counted().hblks - before
    del array
    return mapped


@pytest.mark.skipif(
    not hasattr(glibc(), "mallinfo2"), reason="glibc before 2.33, or another C library"
)
def test_large_blocks_come_from_a_heap_that_does_not_shrink():
    assert blocks_mapped_for_an_array() == 1
    with heap_kept():
        assert blocks_mapped_for_an_array() == 0
        size = counted().arena
        assert blocks_mapped_for_an_array() == 0
        assert counted().arena == size  # what the first one freed was still there
    assert blocks_mapped_for_an_array() == 1


def test_an_error_inside_passes_and_ends_it():
    with pytest.raises(KeyboardInterrupt), heap_kept():
        raise KeyboardInterrupt
    with heap_kept():
        pass


def test_without_glibc_nothing_is_done(monkeypatch):
    monkeypatch.setattr("servegym.agents.heap.glibc", lambda: None)
    with heap_kept():
        pass
