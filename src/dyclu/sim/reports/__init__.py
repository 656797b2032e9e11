"""Reports: results as tables, figures and pages. Nothing here runs a policy.

A report is a `Document`; it becomes Markdown, HTML or terminal output in one place each.
"""
