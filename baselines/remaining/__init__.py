"""Remaining lengths: how many more output tokens a running request will take."""
