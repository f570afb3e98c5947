"""Placement: which nodes new replicas go to. Ledger, packer, bound, reasons."""
