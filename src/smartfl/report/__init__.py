"""Reports: tables, figures, the HTML page."""
