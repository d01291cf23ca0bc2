"""Queue policies: whose head the gateway dispatches next, where one order over all heads cannot say it."""
