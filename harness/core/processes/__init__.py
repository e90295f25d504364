"""Child processes of this one."""
