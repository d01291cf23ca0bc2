"""Tokens to KV blocks and back. Block sizes that are powers of two, the usual ones, avoid the division."""

from servegym.simulator.kernel import kernel


@kernel
def whole_blocks(shared, tokens):
    """Return tokens // block_size (floor)."""
    if shared.block_shift >= 0:
        return tokens >> shared.block_shift
    return tokens // shared.block_size


@kernel
def in_block(shared, tokens):
    """Return tokens mod block_size, in 0 .. block_size - 1 for negative tokens, too."""
    if shared.block_shift >= 0:
        return tokens & (shared.block_size - 1)
    return tokens % shared.block_size


@kernel
def blocks_for(shared, tokens):
    """Return ceil(tokens / block_size)."""
    return whole_blocks(shared, tokens + shared.block_size - 1)


@kernel
def known_blocks(state, request):
    """Return the KV blocks of all known tokens of a waiting request."""
    return blocks_for(state.shared[0], request.prompt_tokens + request.generated)
