"""The relaxation, how high it goes, and packings that reach it; the certificate."""
