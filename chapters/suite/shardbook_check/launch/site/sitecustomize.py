"""Python reads this first in a process of `shardbook-check mutants`: it plants a mistake as soon as torch is imported."""
import builtins
import os
import sys

if os.environ.get("SHARDBOOK_MUTANT"):
    plain = builtins.__import__

    def importing(name, *args, **more):
        module = plain(name, *args, **more)
        torch = sys.modules.get("torch")
        is_whole = torch is not None and not getattr(torch.__spec__, "_initializing", False)
        if is_whole and hasattr(torch, "distributed") and builtins.__import__ is importing:
            builtins.__import__ = plain
            from shardbook_check.launch.mutants import plant_as_told
            plant_as_told()
        return module
    builtins.__import__ = importing
