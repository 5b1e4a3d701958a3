"""Chapter 08: an encoder-decoder, and the layers that only its engines have."""
from mistake import of

HERE, LAYERS, NETWORKS = "chapters/08_decoder/", "chapters/engine/layers/", "chapters/engine/workloads/"
SIZES = ("--model-dim 20 --hidden-dim 26 --heads 8 --head-dim 4 --batch 8 --encoder-blocks 2 --blocks 2 "
         "--length 8")
REAL = "08_decoder.equivalence real-valued*"


def engine(file, options="--source-length 6", tests="", variant="t5-tensor"):
    """Mistakes in a file that this variant with these options shows."""
    return of(f"08 {variant}", file, f"08_decoder --variant {variant} {SIZES} {options}", tests)


tensor = engine(HERE + "t5_tensor.hpp")
equal_lengths = engine(HERE + "t5_tensor.hpp", "--source-length 8")
single = engine(HERE + "t5_single.hpp", variant="t5-single")
sight = engine(HERE + "t5_sight.hpp")
weights = engine(HERE + "t5_tensor_weights.hpp")
tables = engine(HERE + "blocks.hpp")
vocabulary = engine(LAYERS + "embedding.cpp")
attention = engine(LAYERS + "attention.cpp")
positions = engine(LAYERS + "relative_positions.cpp")
gated = engine(LAYERS + "feed_forward.hpp", "--source-length 6 --feed-forward gated-gelu")
model = engine(NETWORKS + "t5_model.hpp")
kind = of("08 t5-tensor", NETWORKS + "t5_kind.cpp", tests=REAL)
gelu = of("08 t5-tensor", "emu/activations.cpp", tests=REAL)
network = of("T5's files", NETWORKS + "t5_network.cpp", tests="safetensors_test t5:*")

ADDENDS = "    Partial& dkeys = source != nullptr ? dsource : dn;               // (T_e, D)   or (T, D)\n"
GATE = '      if (m.has_gate()) add("gate", last, "DenseReluDense.wi_0", true);\n'
UP = '      add("up", last, m.has_gate() ? "DenseReluDense.wi_1" : "DenseReluDense.wi", true);\n'

ALL = [
    tensor("t5-source-gradient-of-one-block", ADDENDS,
           "    if (source != nullptr) dsource = Partial();\n" + ADDENDS,
           "Somebody assigns where each block of the decoder is to add.", "a little worse"),
    tensor("t5-source-gradient-reduced-in-each-block",
           "kept.cross, &source->n, dsource, nullptr, gradients));",
           "kept.cross, &source->n, dsource, nullptr, gradients)),\n"
           "            dsource = Partial(group(), all_reduce(std::move(dsource)).local().clone());",
           "Somebody reduces in each block, and all of it again after the last one.",
           "nothing to see under Adam"),
    tensor("t5-source-gradient-not-reduced",
           "    d = all_reduce(std::move(dsource));            // P → R\n",
           "    d = std::move(dsource);\n",
           "Somebody believes that what every device has needs no reduction, nor its gradient.",
           "does not compile"),
    tensor("t5-source-gradient-averaged",
           "    d = all_reduce(std::move(dsource));            // P → R\n",
           "    d = scale(all_reduce(std::move(dsource)), 1.0F / static_cast<float>(num_devices()));\n",
           "Somebody averages the gradient of what every device has.", "nothing to see under Adam"),
    tensor("t5-bias-gradient-of-one-block", "kept.self, nullptr, dsource, &dbias, gradients));",
           "kept.self, nullptr, dsource, b == 0 ? &dbias : nullptr, gradients));",
           "Somebody takes the table of the first block for that block's own, as files name it.",
           "a little worse"),
    single("t5-source-gradient-of-keys-alone",
           "    accumulate(dkeys, matmul(dv, transposed(w.value)));\n",
           "    if (source == nullptr) accumulate(dkeys, matmul(dv, transposed(w.value)));\n",
           "Somebody forgets that values are made of the source, too.", "a little worse"),
    equal_lengths("t5-decoder-reads-the-source",
                  "all_reduce(embedding(w_.embedding, k.tokens));  ",
                  "all_reduce(embedding(w_.embedding, source != nullptr ? source->tokens : k.tokens));  ",
                  "Somebody gives both stacks the same tokens.", "learns little"),
    tensor("t5-table-of-the-target",
           "    accumulate(dtable, read_backward(Side::encoder, std::move(d), kept.encoder, nullptr, "
           "dsource, gradients));\n",
           "    read_backward(Side::encoder, std::move(d), kept.encoder, nullptr, dsource, gradients);\n",
           "Somebody forgets that the encoder reads the same table.", "a little worse"),
    tensor("t5-one-last-norm",
           "    k.n = rms_norm(x, w.final_norm, m_.epsilon, m_.how, k.norm);  // (T, D)\n",
           "    k.n = rms_norm(x, w_.decoder.final_norm, m_.epsilon, m_.how, k.norm);\n",
           "Somebody uses one last norm for both stacks.", "nothing to see"),
    tables("t5-tied-table-counted-once", "    accumulate(embedding, std::move(head));\n  else\n",
           "    head = E();\n  else\n",
           "Somebody forgets that the table is the head, too.", "learns more slowly"),
    vocabulary("t5-vocabulary-offset",
               "return {table.offset(), table.offset() + table.local().extent(0)};",
               "return {0, table.local().extent(0)};",
               "Somebody looks tokens up by their number in the whole vocabulary.",
               "learns nothing of most tokens"),
    weights("t5-bias-of-the-first-heads",
            "p = Sharded<Axis>(group, c.slice(name, Axis, mine.begin * unit, mine.end * unit), global,",
            "const bool is_bias = name.ends_with(\"position_bias\");\n"
            "  const Index from = is_bias ? 0 : mine.begin * unit;\n"
            "  p = Sharded<Axis>(group, c.slice(name, Axis, from, from + mine.size() * unit), global,",
            "Somebody gives every device the biases of the first heads.", "a little worse"),
    weights("t5-heads-cut", "const Index unit = is_of_attention(name) ? m.head_dim : 1;",
            "const Index unit = 1 + 0 * m.head_dim;",
            "Somebody divides columns, and not heads.", "a bad argument, or a little worse"),

    sight("t5-encoder-sees-what-is-before", "  all.is_causal = side == Side::decoder;\n",
          "  all.is_causal = true;\n",
          "Somebody takes the mask of the decoder for that of every attention.", "a little worse"),
    sight("t5-decoder-sees-what-follows", "  all.is_causal = side == Side::decoder;\n",
          "  all.is_causal = false;\n",
          "Somebody forgets the mask.", "a loss near 0, and nonsense in use"),
    sight("t5-source-at-positions-of-the-target", "  sight.at_k = source.tokens.positions;\n",
          "  (void)source;\n",
          "Somebody counts the tokens of the source as those of the target.", "a bad argument"),
    sight("t5-bias-in-cross-attention", "  sight.heads.bias = nullptr;\n", "",
          "Somebody adds the bias wherever there is one.", "a bad argument, or a little worse"),
    model("t5-buckets-of-both-sides-in-the-decoder",
          "return {buckets, max_distance, side == Side::encoder};",
          "return {buckets, max_distance, side == side};",
          "Somebody leaves half of the decoder's buckets to keys that it never sees.", "nothing to see"),
    positions("t5-buckets-of-keys-before", "all.push_back((k > q ? buckets / 2 : 0) +",
              "all.push_back((k < q ? buckets / 2 : 0) +",
              "Somebody gives the upper half to the other side.", "nothing to see"),
    positions("t5-few-single-distances", "const Index exact = buckets / 2;",
              "const Index exact = buckets / 4;",
              "Somebody halves the buckets once more, as for two directions.", "nothing to see"),
    positions("t5-keys-ahead-at-a-distance", "bucket_of(std::max<Index>(q - k, 0), buckets, max_distance));",
              "bucket_of(std::abs(q - k) + 1, buckets, max_distance));",
              "Somebody counts distances from 1.", "nothing to see"),
    attention("t5-bias-gradient-scaled",
              "  if (dbias.size() > 0) dbias = add(std::move(dbias), ds);\n"
              "  ds = scale(std::move(ds), how.score_scale);\n",
              "  ds = scale(std::move(ds), how.score_scale);\n"
              "  if (dbias.size() > 0) dbias = add(std::move(dbias), ds);\n",
              "Somebody adds the bias before the scale in the backward pass, and after it in the forward "
              "pass.", "nothing to see: T5 does not scale"),
    attention("t5-bias-before-the-scale",
              "  Tensor z = scale(matmul(q, transposed(k)), how.score_scale);\n"
              "  if (bias.size() > 0) z = add(std::move(z), bias);\n",
              "  Tensor z = matmul(q, transposed(k));\n"
              "  if (bias.size() > 0) z = add(std::move(z), bias);\n"
              "  z = scale(std::move(z), how.score_scale);\n",
              "Somebody scales the bias, too.", "nothing to see: T5 does not scale"),
    gated("t5-gate-and-up-swapped", "kept.h = gated(kept.g, kept.u, gate_of(hidden), how);  // (T, F)",
          "kept.h = gated(kept.u, kept.g, gate_of(hidden), how);",
          "Somebody takes the gate for what goes through it.", "nothing to see"),
    gelu("t5-gelu-of-the-error-function", "return z * sigma(gelu_argument(z));",
         "return 0.5F * z * (1 + std::erf(z * 0.70710678F));",
         "Somebody knows GELU by its first definition.", "nothing to see"),
    kind("t5-scores-scaled", "  Arithmetic how;\n  if (m.is_tied)",
         "  Arithmetic how = Arithmetic::real(m.head_dim);\n  if (m.is_tied)",
         "Somebody divides scores by √d, as everywhere else.", "a little worse"),
    kind("t5-logits-of-a-head-scaled", "  if (m.is_tied) how.logit_scale =", "  how.logit_scale =",
         "Somebody scales logits also where the head has a table of its own.", "learns more slowly"),
    network("t5-file-scales-the-logits-of-a-head",
            'says_tied ? "true" : "false"', '"true"',
            "Somebody reads a network of version 1.1 as one of the first version.", "wrong from the start"),
    network("t5-file-gate-and-up-swapped", GATE + UP,
            GATE.replace("wi_0", "wi_1") + UP.replace("wi_1", "wi_0"),
            "Somebody takes wi_0 for what goes through the gate.", "wrong from the start"),
]
