"""The judge: a plain token-by-token simulator of docs/engine.md. No numba, no fast-forward."""
