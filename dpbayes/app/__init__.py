"""The local page of ``dpbayes app``: six steps from a file to a release."""
