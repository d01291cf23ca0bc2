"""Prefetching: results do not show it, the machine's code does."""

import numpy as np
import pytest

from servegym.envs.prefetch import LINE_BYTES, prefetch
from servegym.simulator.kernel import IS_JIT_DISABLED, kernel


@pytest.mark.skipif(IS_JIT_DISABLED, reason="nothing is compiled")
def test_a_record_s_line_is_asked_for_by_its_address():
    @kernel
    def ask(records, i, line):
        prefetch(records, i, line)

    records = np.zeros(3, np.dtype([("a", "i8", (40,))]))  # 320 bytes, 5 lines
    ask(records, 2, 1)
    (code,) = ask.inspect_llvm().values()  # pyright: ignore[reportFunctionMemberAccess]
    assert "call void @llvm.prefetch" in code
    assert LINE_BYTES == 64 and records.strides == (320,)
    assert "320" in code and "64" in code
