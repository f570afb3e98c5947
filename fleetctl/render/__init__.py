"""One file per output format: documents in, text out. Knows no Ray and no command line; masks every env value."""
