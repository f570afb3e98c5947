"""One file per output format: documents in, text out. No Ray, no command line; every env value is masked."""
