"""Pages: a plan or a report as one self-contained HTML file, assembled by `report_page.py` from parts and `assets/`."""
