"""What problems are: their numbers, files, networks, and the list of them."""
