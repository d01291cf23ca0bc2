"""Fitted workload models, one JSON file each; read by servegym.traces.workload."""
