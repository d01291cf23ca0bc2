"""Gymnasium environments of a serving cluster."""
