"""Estimators: how many output tokens a request will take."""
