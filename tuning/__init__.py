"""Search of a system's settings with Optuna: spaces, studies, paired trials, reports. Needs the extra `tune`."""
