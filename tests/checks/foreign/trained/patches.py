"""Without a GPU, TrainCheck 0.2.0 ends with an error where it asks PyTorch 2.15 for the names of all functions; and where a
folder above PyTorch is named torch, it takes neighbours of PyTorch for its files."""
import torch
from traincheck.instrumentor import tracer

torch.backends.cuda.cufft_plan_cache = None
path_of = tracer.get_module_path_from_file_path


def path_if_below(*words):
    try:
        return path_of(*words)
    except ImportError:
        return None


tracer.get_module_path_from_file_path = path_if_below
