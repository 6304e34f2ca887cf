"""The local cloud: an embedded AWS, rehearsed models and a small ERP, all on 127.0.0.1."""
