"""Gymnasium environments: the same engine, paused at the decisions that an agent takes, and pictures of it."""
