"""All mistakes, by part, in the order of the page, and the few that every run of the tests tries."""
import of_checkpoints
import of_data_parallel
import of_decoders
import of_dispatch
import of_emulator
import of_encoder_decoders
import of_engine
import of_expert_parallel
import of_files_and_data
import of_fully_sharded
import of_layers
import of_meshes
import of_museum
import of_pipeline
import of_readers
import of_runtime
import of_tensor_parallel

GROUPS = {"readers": of_readers.ALL, "data_parallel": of_data_parallel.ALL,
          "tensor_parallel": of_tensor_parallel.ALL, "pipeline": of_pipeline.ALL,
          "expert_parallel": of_expert_parallel.ALL, "fully_sharded": of_fully_sharded.ALL,
          "layers": of_layers.ALL, "decoders": of_decoders.ALL,
          "encoder_decoders": of_encoder_decoders.ALL, "engine": of_engine.ALL,
          "meshes": of_meshes.ALL, "files_and_data": of_files_and_data.ALL, "checkpoints": of_checkpoints.ALL,
          "dispatch": of_dispatch.ALL, "runtime": of_runtime.ALL,
          "emulator": of_emulator.ALL, "museum": of_museum.ALL}
SAMPLE = {"03-the-forward-reduction-forgotten", "02-a-mean-for-a-sum", "pp-everything-to-the-next",
          "ep-router-mean", "z1-first-layer-alone-gathered", "loss-without-its-factor", "compare-with-one-ulp",
          "reduce-last-round-forgotten", "shipped-mean-of-partial-sums"}
