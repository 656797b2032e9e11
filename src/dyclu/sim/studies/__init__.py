"""Studies: which runs belong together, and what their report says. One file per study."""
