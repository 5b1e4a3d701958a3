"""Mistakes in chapters 07 to 09: layers, networks made of them, and several axes."""
from mistake import of

C07 = "chapters/07_layers/"
C08 = "chapters/08_decoder/"
C09 = "chapters/09_mesh/"
LAYERS = "chapters/engine/layers/"
SIZES = " --model-dim 20 --hidden-dim 26 --heads 8 --head-dim 4 --batch 8 --length 8"
EXACT = "09_mesh.equivalence@4 exact mode: output*"

PARTS = {}

PARTS["layers"] = [
    *of("07 RMSNorm", C07 + "rms_norm.hpp", "", "layers_test",
        ("layer-rms-divided-by-local-features", "float>(w_.global_shape()[0])", "float>(w_.local().size())",
         "Somebody sums over all features, and divides by those of the device.", "nothing to see")),
    *of("07 LayerNorm", C07 + "layer_norm.hpp", "", "layers_test",
        ("layer-norm-bias-forgotten", 'gradients.put("bias", as(b_, column_sums(dy)));', "",
         "Somebody copies RMSNorm, which has no bias.", "nothing to see")),
    *of("07 attention", C07 + "attention.hpp", "", "layers_test@1",
        ("layer-sees-the-next-token", "at_q_ = positions_from(first,", "at_q_ = positions_from(first + 1,",
         "Somebody counts the positions of queries from 1.", "a loss near 0, and nonsense in use")),
    *of("07 attention", LAYERS + "attention.cpp", "", "layers_test@1",
        ("layer-scale-once", "p, dots, rule.scale)", "p, dots, 1)",
         "Somebody scales scores, and forgets it on the way back to the queries.", "a little worse")),
    *of("07 attention", C07 + "attention_by_heads.hpp", "", "layers_test@1",
        ("layer-heads-in-turn", "key_heads_of(queries, shared, keys.begin)",
         "[&] { std::vector<Index> of; for (Index h = queries.begin; h < queries.end; ++h) of.push_back((h - "
         "queries.begin) % std::max<Index>(keys.size(), 1)); return of; }()",
         "Somebody gives key-value heads to query heads in turn.",
         "nothing to see, until it is loaded elsewhere")),
]

PARTS["decoders"] = [
    *of("08 tensor", C08 + "gradients.hpp", "08_decoder --variant tensor --key-heads 4" + SIZES + " --blocks 2", "",
        ("dec-tied-table-counted-once", "accumulate(embedding, std::move(head))", "head = E()",
         "Somebody forgets that a tied table is used at both ends.", "learns more slowly")),
    *of("08 context", C08 + "sequence_decoder.hpp",
        "08_decoder --variant context --key-heads 4" + SIZES + " --blocks 2", "",
        ("dec-positions-restart", "kept.tokens = read(input, m_.vocabulary).at(cut.places(device_id()));",
         "kept.tokens = read(input, m_.vocabulary).at(cut.places(device_id())); for (std::size_t i = 0; i < "
         "kept.tokens.positions.size(); ++i) kept.tokens.positions[i] = static_cast<Index>(i);",
         "Somebody turns positions on each device from 0.", "a little worse")),
    *of("08 layers", C08 + "layers.hpp",
        "08_decoder --variant layers --key-heads 4" + SIZES + " --blocks 4 --micro-batches 3", "",
        ("dec-labels-to-the-next-stage", "if (!stage_.is_last()) send(last(), labels_of(tokens));",
         "if (!stage_.is_last()) send(device_id() + 1, labels_of(tokens));",
         "Somebody tests with two devices, where the next one is the last.", "hangs"),
        ("dec-copy-of-the-table-not-updated", "assign(Rows(stage_.w.own_head.parameter()), receive(0))",
         "(void)receive(0)", "Somebody forgets that the last device has a copy of a tied table.",
         "learns more slowly")),
    *of("08 layers", C08 + "layers_stage.hpp",
        "08_decoder --variant layers --key-heads 4" + SIZES + " --blocks 4 --micro-batches 3", "",
        ("dec-rows-of-the-first-micro-batch", "first_sequence * batch.length", "first_sequence",
         "Somebody counts sequences where the loss counts tokens.", "nothing to see")),
    *of("08 tensor", LAYERS + "attention.cpp",
        "08_decoder --variant tensor --key-heads 2" + SIZES + " --blocks 2", "",
        ("dec-key-head-by-local-number", "of.push_back(h / shared - first_key_head);",
         "of.push_back((h - mine.begin) / shared + 0 * first_key_head);",
         "Somebody counts the query heads of each device from 0.", "a little worse")),
    *of("08 context", LAYERS + "rms_norm.cpp",
        "08_decoder --variant context --key-heads 4" + SIZES + " --blocks 2", "unsharded_test",
        ("dec-epsilon-left-out", "x)), 1, epsilon", "x)), 1, 0 * epsilon",
         "Somebody leaves out what matters only where a row is near 0.", "nothing to see")),
    *of("08 context", LAYERS + "tokens/cross_entropy.cpp",
        "08_decoder --variant context --key-heads 4" + SIZES + " --blocks 2", "unsharded_test",
        ("dec-token-without-a-label", "== no_slot ?", "== no_slot - 1 ?",
         "Somebody forgets that some tokens have no label.",
         "learns padding")),
    *of("08 context", "chapters/engine/engines/loss.cpp",
        "08_decoder --variant context --key-heads 4" + SIZES + " --blocks 2", "",
        ("dec-mean-of-local-tokens", "double>(labelled_))",
         "double>(std::max<Index>(losses.size(), 1))); (void)labelled_",
         "Somebody divides by the tokens of the device.", "nothing to see under Adam")),
    *of("08 generation", LAYERS + "tokens/language_model.hpp", "", "08_decoder.equivalence generated*",
        ("dec-generated-at-position-0", "for (Index& position : tokens.positions) position += next_position_;",
         "", "Somebody reads the next token as the first of a sequence.", "nothing: training has no cache")),
]

PARTS["encoder_decoders"] = [
    *of("08 t5-tensor", "chapters/engine/workloads/t5/model.hpp",
        "08_decoder --variant t5-tensor --encoder-blocks 2 --blocks 2 --source-length 6" + SIZES, "unsharded_test",
        ("t5-buckets-of-both-sides-in-the-decoder", "Side::encoder}", "side}",
         "Somebody leaves half of the decoder's buckets to keys that it never sees.", "nothing to see")),
    *of("08 t5-tensor", "emu/operations/activations.cpp", "", "operations_test gates*",
        ("t5-gelu-of-the-error-function", "x * sigma(gelu_argument(x))",
         "0.5F * x * (1 + std::erf(x * 0.70710678F))", "Somebody knows GELU by its first definition.",
         "nothing to see")),
    *of("T5's files", "chapters/engine/workloads/t5/model.cpp", "", "safetensors_test t5:*",
        ("t5-file-scales-the-logits-of-a-head", '"scale_decoder_outputs", says_tied', '"scale_decoder_outputs", true',
         "Somebody reads a network of version 1.1 as one of the first version.", "wrong from the start")),
]

PARTS["meshes"] = [
    *of("09 data-tensor", C09 + "data_tensor.hpp", "09_mesh", EXACT,
        ("mesh-forward-over-data", "x = all_reduce<tensor", "x = all_reduce<data",
         "Somebody names the other axis.", "does not compile"),
        ("mesh-gradient-over-all-devices", "all_reduce<data>(std::move(dw1))",
         "On<R, S<0>>(mesh(), ShardedEngine::all_reduce(detail::Access::take(std::move(dw1))), "
         "block.w1.global_shape())", "Somebody reduces gradients as in data parallel: over all devices.",
         "learns nonsense: slices of different places are added")),
    *of("09 expert-data", C09 + "expert_copies.hpp",
        "09_mesh --variant expert-data", "09_mesh.equivalence@4 the norm*",
        ("mesh-expert-copies-in-the-norm", "move(placed).copied_over(*copies_)", "move(placed)",
         "Somebody adds up the squares of all devices, and each copy of an expert counts.", "nothing to see")),
    *of("09 expert-data", C09 + "expert_data.hpp", "09_mesh --variant expert-data", EXACT,
        ("mesh-router-over-copies", "all_reduce(matmul(transposed(x), dlogits))",
         'Replicated(group(), mesh.axis("data").all_reduce_async(detail::Access::take(matmul(transposed(x), '
         "dlogits)), ReduceOp::sum).get())", "Somebody reduces all gradients over data.",
         "nothing to see: routers drift apart")),
    *of("mesh", "chapters/engine/layouts/mesh.cpp", "", "layouts_test@4",
        ("mesh-color-for-key", "color, key", "key, color",
         "Somebody swaps the arguments of a split: an axis is the group of the other one.", "learns nonsense"),
        ("mesh-joined-places-added", "key * axis.size + place", "key + place",
         "Somebody adds places on axes, and devices of one sum keep their old order.",
         "nothing to see with axes in the mesh's order")),
    *of("mesh", "chapters/engine/layouts/mesh.cpp", "", "layouts_test@4",
        ("mesh-smaller-axes-first", "factors, std::greater()", "factors",
         "Somebody sorts, and not in the order that the page promises.", "nothing to see")),
    *of("mesh", "chapters/engine/layouts/mesh.cpp", "", "layouts_test@4",
        ("mesh-outer-cut-forgotten", "{range.begin + mine.begin * width, range.begin + mine.end * width}", "mine",
         "Somebody forgets where the outer piece begins.", "learns from some rows only"),
        ("mesh-nested-cut-at-once", "{range.begin + mine.begin * width, range.begin + mine.end * width}",
         "[&] { int parts = 1, place = 0; for (const MeshCut& c : cuts) { if (c.dimension != dimension) "
         "continue; parts *= c.over->num_devices(); place = place * c.over->num_devices() + "
         "c.over->device_id(); } const Index w = pieces > 0 ? extent / pieces : 1; const Range all = "
         "part(extent / std::max<Index>(w, 1), parts, place); (void)mine; return Range{all.begin * w, all.end * "
         "w}; }()", "Somebody cuts six rows over 2 × 2 devices into 2, 2, 1 and 1.",
         "nothing to see, or stops with an error")),
    *of("engine", "chapters/engine/engines/sharded_engine.cpp", "09_mesh --mesh tensor,data", "layouts_test@4",
        ("mesh-outer-cut-gathered-first", "rbegin(); is_here && cut != placement.cuts.rend",
         "begin(); is_here && cut != placement.cuts.end",
         "Somebody gathers the cuts in the order in which they were made.", "nothing to see: a wrong file")),
    *of("09 decoder-data-tensor", C09 + "decoder_data_tensor.hpp", "09_mesh --variant decoder-data-tensor", EXACT,
        ("mesh-decoder-mean-of-my-tokens", "std::move(dloss)",
         "scale(std::move(dloss), static_cast<float>(kept.all_sequences) / "
         "static_cast<float>(mesh().size(data::name) * std::max<Index>(kept.tokens.sequences, 1)))",
         "Somebody takes the mean over the tokens of each device, and the mean of these means.",
         "nothing to see where all devices have as many")),
    *of("09 decoder-data-tensor", C09 + "decoder_parts.hpp",
        "09_mesh --variant decoder-data-tensor --mesh tensor,data --key-heads 1", EXACT,
        ("mesh-decoder-groups-of-heads-cut", "decoders::TensorHeads(m, devices).pieces()", "m.heads",
         "Somebody cuts between any two query heads, and keys follow no longer.", "stops with an error")),
    *of("on a mesh", "chapters/engine/layouts/on_mesh.hpp", "09_mesh --variant decoder-data-tensor", "layouts_test@4",
        ("mesh-heads-cut-apart", "keeps_pieces<L> ? mesh.pieces(axis) : 0", "0",
         "Somebody cuts heads and sequences as any other dimension.", "stops with an error")),
]
