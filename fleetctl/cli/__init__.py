"""The command line: one file per command. Flags, time and environment come into the program here."""
