"""Golden files are rewritten with ``pytest tests/golden --golden-update`` and reviewed as text."""


def pytest_addoption(parser):
    parser.addoption("--golden-update", action="store_true", help="rewrite the golden files")
