"""Dispatch policies: which instance serves a request."""
