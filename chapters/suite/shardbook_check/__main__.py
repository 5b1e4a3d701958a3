"""python -m shardbook_check: the command, where its folder is not on the PATH."""
import sys

from .command import main

sys.exit(main())
