"""The paper, reproduced: its tables and figures as studies that run, resume, and are set beside its numbers."""
