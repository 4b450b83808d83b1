"""Measured comparisons with peers; medians and ratios of one run, never absolute claims."""
