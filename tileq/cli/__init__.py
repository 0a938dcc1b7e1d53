"""The `tileq` command: one file per subcommand, each a thin reading of the call of the same name in Python."""
