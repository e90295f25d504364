"""Which sublayers a model leaves out when it drafts for itself: found on train rows."""
