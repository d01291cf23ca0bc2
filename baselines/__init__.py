"""Hand-written policies, by the decision they take, and the systems made of them.

One small file per policy; decorating a policy registers it under its function name.
"""
