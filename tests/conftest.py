import os

# Before anything imports scipy: without it scikit-learn skips its array-API check.
os.environ["SCIPY_ARRAY_API"] = "1"
