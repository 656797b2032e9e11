"""Reports: results as tables, figures and pages. Nothing here runs a policy.

A report is a `Document`. `page` writes it as Markdown and HTML, `terminal` prints its tables.
"""
