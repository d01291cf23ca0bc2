"""Scaling policies: when the fleet grows and shrinks."""
