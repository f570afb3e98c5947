"""The command line: one file per command. Flags, time and environment enter the program here."""
