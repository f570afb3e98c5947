"""The relaxation, its maximum, packings that reach it, and the certificate."""
