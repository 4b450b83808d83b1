"""The demo job: triage of generated customer-support tickets by a small DiffusionGemma."""
