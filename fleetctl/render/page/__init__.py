"""Pages: a plan or a report as one self-contained HTML file: no network, no font, no server.

`report_page.py` assembles a page, `shell.py` puts it into one file; `assets/` holds its styles and scripts.
"""
