"""Who wins: rankings over what is sound for all, in words."""
