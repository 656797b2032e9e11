"""Studies: which runs belong together, how they are run, and what their report contains.

Add a study here. `study.Study` compares policies in simulated settings, `stream.StreamStudy` on
recorded data sets; `running.run_study` makes the runs of either and writes its report.
"""
