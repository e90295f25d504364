"""One small function per plot. Each reads only what `reports.cells` exports and draws one panel."""
