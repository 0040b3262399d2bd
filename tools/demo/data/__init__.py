"""Seeded generator of the demo model's text: facts, skills, documents, tool sessions, conversations."""
