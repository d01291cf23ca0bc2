"""Experiments: grids of runs, paired statistics, reports."""
