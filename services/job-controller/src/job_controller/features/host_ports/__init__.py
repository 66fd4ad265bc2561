"""Jobs with `intranet: Host` own a block of host ports."""
