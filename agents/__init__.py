"""Training: learned schedulers, and the scenarios and objectives that they are trained for."""
