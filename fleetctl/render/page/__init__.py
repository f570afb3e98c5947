"""Pages: a plan or a report as one HTML file that needs nothing beside itself: no network, no font, no server.

`plan_page.py` puts the page of a plan together, `shell.py` makes a page of any content; `assets/` has style and script.
"""
