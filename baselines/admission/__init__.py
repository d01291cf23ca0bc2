"""Admission policies: who may enter the gateway's queues."""
