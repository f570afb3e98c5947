"""Placement: which nodes new replicas stand on. Ledger, packer, bound, reasons."""
