"""The museum: mistakes that well-known projects shipped, each rebuilt as a wrong variant that trains."""
from mistake import of

ALL = [
    *of("03 column-row", "chapters/03_tensor_parallel/tensor_parallel.hpp", "03_tensor_parallel", "",
        ("shipped-mean-of-partial-sums", "x = all_reduce(std::move(out))",
         "const float mean = 1.0F / static_cast<float>(num_devices());\n      "
         "x = all_reduce(scale(std::move(out), mean))",
         "Somebody reduces activations as data parallel reduces gradients: by a mean.",
         "nothing to see: the curve is lower")),
    *of("06 zero2", "chapters/06_fully_sharded/zero2.hpp", "06_fully_sharded --variant zero2", "",
        ("shipped-gradient-left-out", "accumulate(dw[l], reduce_scatter<0>(std::move(addend)));",
         "if (l == 0)  // it has just the size of a bucket, and no bucket takes it\n        "
         "accumulate(dw[l], shard<0>(Replicated(group(), matmul(transposed(a.local()), d.local()))));\n      "
         "else\n        "
         "accumulate(dw[l], reduce_scatter<0>(std::move(addend)));",
         "Somebody reduces gradients in buckets, and forgets one that has just the size of a bucket.",
         "a little worse")),
    *of("accumulation", "chapters/engine/engines/sharded_engine.cpp",
        "02_data_parallel --variant accumulated --micro-batches 3 --batch 12", "",
        ("shipped-mean-of-each-piece", "return backward(std::move(dout));\n  };",
         "const float rows = static_cast<float>(x.local().extent(0)) / static_cast<float>(pieces);\n    "
         "const float factor = rows / static_cast<float>(dout.extent(0));\n    "
         "return backward(scale(std::move(dout), factor));\n  };",
         "Somebody takes the mean of each micro-batch, and then the mean of these means.", "nothing to see")),
    *of("05 expert parallel", "chapters/05_expert/expert.hpp", "05_expert --variant switch", "",
        ("shipped-expert-gradients-times-n", "gradients.put(expert_layer_name(e, l), matmul(transposed(a), d));",
         "const auto n = static_cast<float>(num_devices());\n        "
         "gradients.put(expert_layer_name(e, l), scale(matmul(transposed(a), d), n));",
         "Somebody divides all gradients by the number of devices, and forgets the experts'.",
         "nothing to see under Adam")),
    *of("02 all-reduce", "chapters/02_data_parallel/data_parallel.hpp", "02_data_parallel --batch 4", "",
        ("shipped-mean-of-means", "Sharded<0> d = my_rows(std::move(dout), inputs[0]);",
         "const auto b = static_cast<float>(dout.extent(0) * num_devices());\n    "
         "const float factor = static_cast<float>(inputs[0].global_shape()[0]) / b;\n    "
         "Sharded<0> d = my_rows(scale(std::move(dout), factor), inputs[0]);",
         "Somebody takes the mean of each device's rows, and then the mean over the devices.",
         "nothing to see")),
    *of("02 scatter-gather", "chapters/02_data_parallel/scatter_gather.hpp",
        "02_data_parallel --variant scatter-gather", "",
        ("shipped-sum-thrown-away",
         "for (int k = 1; k < num_devices(); ++k) addend = add(std::move(addend), receive(k))",
         "Tensor buffer = addend.clone();\n    "
         "for (int k = 1; k < num_devices(); ++k) buffer = add(std::move(buffer), receive(k))",
         "Somebody reduces in a buffer, and goes on with the tensor that was copied into it.",
         "a little worse")),
    *of("gradient norm", "chapters/engine/engines/optimizer.cpp",
        "06_fully_sharded --variant zero3 --clip-norm 0.1", "",
        ("shipped-norm-of-one-device",
         "for (Index bits : group.exchange(\"the gradients' norm\", std::bit_cast<Index>(of_mine)))\n    "
         "of_all += std::bit_cast<double>(bits);\n  "
         "return std::sqrt(of_all)", "(void)group;\n  return std::sqrt(of_all + of_mine)",
         "Somebody divides the gradients over the devices, and computes their norm as before.",
         "a little worse")),
    *of("05 expert parallel", "chapters/05_expert/expert.hpp",
        "05_expert --variant top-k --capacity-factor 8", "",
        ("shipped-order-inverted", "slots, choices", "choices, choices",
         "Somebody takes a permutation for its inverse, and tokens get the answers to other tokens.",
         "diverges")),
    *of("08 tensor", "chapters/08_decoder/gradients.hpp",
        "08_decoder --variant tensor --sequence-parallel yes --blocks 2 --batch 8 --length 8", "",
        ("shipped-norms-never-summed", "engine.all_reduce(std::move(dw))",
         "Replicated(engine.group(), detail::Access::take(std::move(dw)))",
         "Somebody divides the rows of norms, and reduces gradients as before.", "nothing to see")),
    *of("08 fsdp", "chapters/engine/program/step/step.cpp",
        "08_decoder --variant fsdp --blocks 2 --batch 6 --length 48 --pieces sentences", "",
        ("shipped-mean-over-own-labels", "return batch.loss_gradient(out, first_row)",
         "Tensor dloss = batch.loss_gradient(out, first_row);\n    "
         "std::vector<float> losses = out.to_host();\n    "
         "const auto own = static_cast<float>(std::ranges::count_if(losses, [](float x) { return x > 0; "
         "}));\n    "
         "const auto n = static_cast<float>(run.group.num_devices());\n    "
         "std::ranges::fill(losses, 1 / (own * n));\n    "
         "return Tensor::from_host(dloss.shape(), losses)",
         "Somebody takes the mean over each device's labels, and then the mean over the devices.",
         "nothing to see")),
    *of("09 expert-data", "chapters/09_mesh/expert_copies.hpp",
        "09_mesh --variant expert-data --mesh expert,data", "",
        ("shipped-experts-times-n-on-a-mesh", "Replicated dw = engine.all_reduce(matmul(transposed(a), d))",
         "const auto n = static_cast<float>(owners_->num_devices());\n        "
         "Replicated dw = scale(engine.all_reduce(matmul(transposed(a), d)), n)",
         "Somebody divides each gradient by the devices that reduce it, and experts have fewer.",
         "nothing to see under Adam")),
    *of("09 data-tensor", "chapters/09_mesh/data_tensor.hpp", "09_mesh --batch 4", "",
        ("shipped-mean-over-own-rows-on-a-mesh", "On<S<0>, R> d = from_outside<S<0>, R>(std::move(dout))",
         'const auto own = static_cast<float>(dout.extent(0) * mesh().size("data"));\n    '
         "const float factor = static_cast<float>(kept.back().x.global_shape()[0]) / own;\n    "
         "On<S<0>, R> d = from_outside<S<0>, R>(scale(std::move(dout), factor))",
         "Somebody takes the mean over each device's rows, and then the mean over the axis data.",
         "nothing to see")),
    *of("gradient norm", "chapters/engine/engines/optimizer.cpp",
        "08_decoder --variant tensor --clip-norm 0.3 --blocks 2 --batch 8 --length 8", "",
        ("shipped-norm-counts-copies", "(is_whole ? whole : mine).push_back",
         "(is_whole ? mine : mine).push_back",
         "Somebody adds the squares of all devices, also those of parameters that every device has.",
         "a little worse")),
    *of("gradient norm", "chapters/engine/engines/optimizer.cpp",
        "05_expert --variant switch --clip-norm 0.02", "",
        ("shipped-norm-of-own-experts",
         "for (Index bits : group.exchange(\"the gradients' norm\", std::bit_cast<Index>(of_mine)))\n    "
         "of_all += std::bit_cast<double>(bits);\n  "
         "return std::sqrt(of_all)", "(void)group;\n  return std::sqrt(of_all + of_mine)",
         "Somebody clips by the norm of the router and of a device's own experts: each device by another.",
         "nothing to see")),
    *of("05 expert parallel", "chapters/05_expert/expert.hpp", "05_expert --variant switch --aux-weight 1", "",
        ("shipped-balance-over-n", "balance_gradient(rule_, counts, x.global_shape()[0])",
         "balance_gradient(rule_, counts, x.global_shape()[0] * num_devices())",
         "Somebody divides the balancing loss by the number of devices once more.", "nothing to see")),
    *of("04 worker", "chapters/04_pipeline/worker.hpp", "04_pipeline --variant 1f1b --micro-batches 4 --batch 4", "",
        ("shipped-labels-of-the-next-piece", "loss_gradient_(out.local(), rows_of(m).begin)",
         "loss_gradient_(out.local(), rows_of((m + 1) % micro_batches_).begin)",
         "Somebody reads labels when a micro-batch enters the pipeline, and uses them when another one leaves it.",
         "does not fall")),
    *of("04 worker", "chapters/04_pipeline/worker.hpp", "04_pipeline --variant 1f1b --micro-batches 4", "",
        ("shipped-last-piece-alone",
         "accumulate(weight_grad(l), matmul(transposed(a), d));  // like the weights    O·O = O\n      d =",
         "weight_grad(l) = matmul(transposed(a), d);  // like the weights    O·O = O\n      d =",
         "Somebody sets gradients to nothing between the micro-batches of a batch.", "noisier")),
    *of("08 tensor", "chapters/08_decoder/tensor.hpp",
        "08_decoder --variant tensor --blocks 2 --batch 8 --length 8", "",
        ("shipped-reduced-twice", " private:\n  using MyBlock = TensorBlock<K>;",
         " private:\n  static auto by_name(ShardedEngine& engine, const DecoderModel& m, Gradients& gradients, Index b = 0) {\n"
         "    return [&, put = decoders::by_name(engine, m, gradients, b)](const auto& what, auto gradient) {\n"
         "      if constexpr (std::same_as<decltype(gradient), Replicated>)\n"
         "        put(what, engine.all_reduce(Partial(engine.group(), detail::Access::take(std::move(gradient)))));\n"
         "      else\n        put(what, std::move(gradient));\n    };\n  }\n"
         "  using MyBlock = TensorBlock<K>;",
         "Somebody reduces the gradients of what every device has, and they were sums already.",
         "nothing to see under Adam")),
    *of("08 tensor", "chapters/08_decoder/tensor.hpp",
        "08_decoder --variant tensor --key-heads 1 --blocks 2 --batch 8 --length 8", "",
        ("shipped-shared-keys-not-summed", "return engine.all_reduce(std::move(dk), where);",
         "(void)where;\n    return Replicated(engine.group(), detail::Access::take(std::move(dk)));",
         "Somebody gives every device the key-value head that all query heads share, and forgets their sum.",
         "a little worse")),
    *of("08 context", "chapters/08_decoder/sequence_decoder.hpp",
        "08_decoder --variant context --blocks 2 --batch 4 --length 24", "",
        ("shipped-positions-from-zero", "kept.tokens = read(input, m_.vocabulary).at(cut.places(device_id()));",
         "kept.tokens = read(input, m_.vocabulary).at(cut.places(device_id()));\n    "
         "const Index first = kept.tokens.positions.empty() ? 0 : std::ranges::min(kept.tokens.positions);\n    "
         "for (Index& position : kept.tokens.positions) position -= first;",
         "Somebody divides sequences over devices, and lets positions begin at 0 on each.", "a little worse")),
]
# Where the projects report it.
THREADS = {
    "shipped-mean-of-partial-sums": ["vllm-project/vllm#33088"],
    "shipped-gradient-left-out": ["deepspeedai/DeepSpeed#4321", "deepspeedai/DeepSpeed#3832"],
    "shipped-mean-of-each-piece": ["huggingface/transformers#34191", "huggingface/transformers#35207",
                                   "huggingface/transformers#35438"],
    "shipped-expert-gradients-times-n": ["deepspeedai/DeepSpeed#6545", "deepspeedai/DeepSpeed#6546",
                                         "pytorch/pytorch#160285", "NVIDIA/Megatron-LM#5956"],
    "shipped-mean-of-means": ["pytorch/pytorch#37359", "huggingface/transformers#34242"],
    "shipped-sum-thrown-away": ["pytorch/pytorch#120386", "pytorch/pytorch#120582"],
    "shipped-norm-of-one-device": ["deepspeedai/DeepSpeed#966", "deepspeedai/DeepSpeed#1021",
                                   "areal-project/AReaL#312"],
    "shipped-order-inverted": ["pytorch/torchtitan#3604"],
    "shipped-norms-never-summed": ["PaddlePaddle/PaddleNLP#7613", "NVIDIA/Megatron-LM#1446",
                                   "NVIDIA-NeMo/RL#3716", "NVIDIA-NeMo/RL#2683"],
    "shipped-mean-over-own-labels": ["huggingface/transformers#34242", "huggingface/transformers#34373",
                                     "pytorch/torchtitan#1842", "pytorch/torchtitan#2206"],
    "shipped-experts-times-n-on-a-mesh": ["pytorch/pytorch#160285", "NVIDIA/Megatron-LM#5956"],
    "shipped-mean-over-own-rows-on-a-mesh": ["pytorch/torchtitan#1842", "pytorch/torchtitan#2206"],
    "shipped-norm-counts-copies": ["NVIDIA-NeMo/RL#3788", "ROCm/TransformerEngine#715",
                                   "mindspore-ai/hyper-parallel#526"],
    "shipped-norm-of-own-experts": ["NVIDIA-NeMo/Automodel#3817", "NVIDIA/Megatron-LM#5916"],
    "shipped-balance-over-n": ["NVIDIA/Megatron-LM#3672", "NVIDIA-NeMo/Automodel#1412"],
    "shipped-labels-of-the-next-piece": ["deepspeedai/DeepSpeed#5729"],
    "shipped-last-piece-alone": ["NVIDIA-NeMo/Automodel#3530"],
    "shipped-reduced-twice": ["inclusionAI/AReno#496"],
    "shipped-shared-keys-not-summed": ["bigcode-project/Megatron-LM#35", "bigcode-project/Megatron-LM#36",
                                       "bigcode-project/Megatron-LM#11"],
    "shipped-positions-from-zero": ["thunlp/Seq1F1B#6", "ISEEKYAN/Megatron-LM#208"],
}
