"""One's own program on one device, as the reference of a sharded one."""
