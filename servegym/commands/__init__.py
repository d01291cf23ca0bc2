"""The commands of the command line, one file each: `run(arguments) -> exit code`."""
