"""What the site needs beside docs/: pages made from the code, and links between both.

`mkdocs.yml` names `hooks.py`; `make docs` builds the site. Pages written by hand are in docs/.
"""
