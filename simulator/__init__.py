"""The cluster simulator: iteration times, engines, KV blocks, gateway, metrics.

One engine, jitted, on integer picoseconds; everything that decides is a policy it calls.
"""
