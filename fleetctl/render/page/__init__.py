"""Pages: a plan or a report as one HTML file that needs nothing beside itself: no network, no font, no server.

`report_page.py` puts a page together, `shell.py` makes it one file; `assets/` has style and script.
"""
