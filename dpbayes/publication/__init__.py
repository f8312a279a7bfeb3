"""The job, the gate that a release passes, and the budget ledger."""
