"""Payloads as columns: what option ``decode`` names, by SBE schema, numpy dtype or JSON. Pure."""
