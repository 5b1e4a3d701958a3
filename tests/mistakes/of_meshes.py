"""Chapter 09: meshes, tensors on them, and the engines whose collectives name an axis."""
from mistake import of

HERE, ENGINE = "chapters/09_mesh/", "chapters/engine/"
EXACT, NORM = "09_mesh.equivalence@4 exact mode: output*", "09_mesh.equivalence@4 the norm*"
ON_MESH = "layouts_test@4"
data_tensor = of("09 data-tensor", HERE + "data_tensor.hpp", "09_mesh", EXACT)
fsdp = of("09 fsdp-tensor", HERE + "fsdp_tensor.hpp", "09_mesh --variant fsdp-tensor", EXACT)
hsdp = of("09 hsdp", HERE + "hsdp.hpp", "09_mesh --variant hsdp", EXACT)
mixture = of("09 expert-data", HERE + "expert_data.hpp", "09_mesh --variant expert-data", EXACT)
experts = of("09 expert-data", HERE + "expert_copies.hpp", "09_mesh --variant expert-data", EXACT)
TWO_AXES = "09_mesh --variant decoder-data-tensor"
OVER_TENSOR = TWO_AXES + " --mesh tensor,data --key-heads 1"
decoder = of("09 decoder-data-tensor", HERE + "decoder_data_tensor.hpp", TWO_AXES, EXACT)
decoder_fsdp = of("09 decoder-fsdp-tensor", HERE + "decoder_fsdp_tensor.hpp",
                  "09_mesh --variant decoder-fsdp-tensor", EXACT)
decoder_blocks = of("09 decoder-data-tensor", HERE + "decoder_blocks.hpp", OVER_TENSOR, EXACT)
decoder_tensors = of("09 decoder-data-tensor", HERE + "decoder_tensors.hpp", OVER_TENSOR, EXACT)
groups = of("mesh", ENGINE + "mesh.cpp", tests=ON_MESH)
shape = of("mesh", ENGINE + "mesh_shape.cpp", tests=ON_MESH)
cut = of("mesh", ENGINE + "mesh_cut.cpp", tests=ON_MESH)
letters = of("on a mesh", ENGINE + "on_mesh.hpp", "09_mesh", NORM)
norm = of("gradient norm", ENGINE + "gradient_norm.cpp", "09_mesh --clip-norm 0.1", NORM)
rows = of("engine", ENGINE + "sharded_engine.cpp", "09_mesh --mesh tensor,data", EXACT)
parts = of("checkpoint", ENGINE + "ranges.hpp", "09_mesh --variant fsdp-tensor", EXACT)

FORWARD = "x = all_reduce<tensor>(std::move(out));"
OF_EXPERT = "Replicated dw = engine.all_reduce(matmul(transposed(a), d));"
OF_WEIGHT = "gradients.put(name, all_reduce<data>(std::move(dw)));"
ROUTER = "gradients.put(router_name(), all_reduce(matmul(transposed(x), dlogits)));"

ALL = [
    data_tensor("mesh-forward-over-data", FORWARD, "x = all_reduce<data>(std::move(out));",
                "Somebody names the other axis.", "does not compile"),
    data_tensor("mesh-forward-over-all-devices", FORWARD,
                "const Shape whole = out.global_shape();\n"
                "      x = On<S<0>, R>(mesh(), ShardedEngine::all_reduce(detail::Access::take("
                "std::move(out))), whole);",
                "Somebody comes from one group, and reduces over all devices.",
                "learns nonsense"),
    data_tensor("mesh-dx-not-reduced", "d = all_reduce<tensor>(std::move(dx));", "d = std::move(dx);",
                "Somebody reduces forward, and forgets that backward needs it, too.", "does not compile"),
    data_tensor("mesh-gradient-not-reduced", "all_reduce<data>(std::move(dw1))", "std::move(dw1)",
                "Somebody adds data parallel to a tensor parallel program, and forgets a gradient.",
                "does not compile"),
    data_tensor("mesh-gradient-over-tensor", "all_reduce<data>(std::move(dw0))",
                "all_reduce<tensor>(std::move(dw0))", "Somebody names the other axis.", "does not compile"),
    data_tensor("mesh-gradient-over-all-devices", "all_reduce<data>(std::move(dw1))",
                "On<R, S<0>>(mesh(), ShardedEngine::all_reduce(detail::Access::take(std::move(dw1))), "
                "block.w1.global_shape())",
                "Somebody reduces gradients as in data parallel: over all devices.",
                "learns nonsense: slices of different places are added"),
    data_tensor("mesh-gradient-by-all-devices", "all_reduce<data>(std::move(dw1))",
                "scale(all_reduce<data>(std::move(dw1)), 1.0F / static_cast<float>(num_devices()))",
                "Somebody divides a gradient by the number of all devices.", "nothing to see under Adam"),
    data_tensor("mesh-input-replicated", "return placement<S<0>, R>();", "return placement<R, R>();",
                "Somebody gives each device the whole batch, and the engine takes it for its rows.",
                "nothing to see under Adam"),
    data_tensor("mesh-input-over-tensor", "return placement<S<0>, R>();", "return placement<R, S<0>>();",
                "Somebody cuts the batch over the axis that does not divide it.",
                "learns nonsense: rows of different samples are added"),
    data_tensor("mesh-weights-over-data", "{load<R, S<1>>(checkpoint, layer_name(l)),",
                "{load<S<1>, R>(checkpoint, layer_name(l)),", "Somebody swaps two letters.",
                "does not compile"),
    fsdp("mesh-scattered-along-the-wrong-dimension", "reduce_scatter<data, 1>(std::move(dw1))",
         "reduce_scatter<data, 0>(std::move(dw1))",
         "Somebody copies a line: each layer's gradients are cut along another dimension.",
         "does not compile"),
    fsdp("mesh-gathered-over-tensor", "On<R, S<0>> w1 = all_gather<data>(block.w1);  // (F/N, D)   (S1",
         "On<R, S<0>> w1 = all_gather<tensor>(block.w1);  // (F/N, D)   (S1",
         "Somebody gathers what tensor parallel divides.", "does not compile"),
    hsdp("mesh-replicas-not-reduced", "all_reduce<replica>(std::move(mine))", "std::move(mine)",
         "Somebody reduces inside each group, and forgets the other groups.", "does not compile"),
    hsdp("mesh-sharded-over-replicas", "load<R, S<0>>(checkpoint, name)", "load<S<0>, R>(checkpoint, name)",
         "Somebody divides parameters over the axis that has copies.", "does not compile"),
    hsdp("mesh-replicas-first", "reduce_scatter<shards, 0>(std::move(addend));",
         "reduce_scatter<replica, 0>(std::move(addend));",
         "Somebody swaps the axes of two reductions.", "does not compile"),

    experts("mesh-expert-gradient-not-reduced", OF_EXPERT,
            "(void)engine;\n        Replicated dw = matmul(transposed(a), d);",
            "Somebody takes chapter 05's expert, which has no copy.", "does not compile"),
    experts("mesh-expert-gradient-claimed", OF_EXPERT,
            "(void)engine;\n        Replicated dw(*copies_, detail::Access::take(matmul(transposed(a), d)));",
            "Somebody silences the compiler: each copy of an expert gets its own gradient.",
            "nothing to see: copies drift apart"),
    experts("mesh-expert-gradient-over-experts", OF_EXPERT,
            "(void)engine;\n        Replicated dw(*copies_, owners_->all_reduce_async(detail::Access::take("
            "matmul(transposed(a), d)), ReduceOp::sum).get());",
            "Somebody swaps two groups: gradients of different experts are added.",
            "stops with an error, or learns nonsense"),
    experts("mesh-expert-gradient-averaged", OF_EXPERT,
            "Replicated dw = scale(engine.all_reduce(matmul(transposed(a), d)), 1.0F / "
            "static_cast<float>(number()));",
            "Somebody averages over the copies of an expert.", "nothing to see under Adam"),
    experts("mesh-expert-copies-in-the-norm", "std::move(placed).copied_over(*copies_)", "std::move(placed)",
            "Somebody adds up the squares of all devices, and each copy of an expert counts.",
            "nothing to see", tests=NORM),
    experts("mesh-expert-tokens-of-another-copy", "copies_->device_id() * owners_->num_devices()",
            "owners_->device_id() * copies_->num_devices()", "Somebody swaps the axes in an index.",
            "stops with an error"),
    mixture("mesh-router-over-experts", ROUTER,
            "gradients.put(router_name(), Replicated(group(), experts_.owners().all_reduce_async("
            "detail::Access::take(matmul(transposed(x), dlogits)), ReduceOp::sum).get()));",
            "Somebody reduces the router's gradient where tokens are exchanged, and nowhere else.",
            "nothing to see: routers drift apart"),
    mixture("mesh-router-over-copies", ROUTER,
            "gradients.put(router_name(), Replicated(group(), mesh.axis(\"data\").all_reduce_async("
            "detail::Access::take(matmul(transposed(x), dlogits)), ReduceOp::sum).get()));",
            "Somebody reduces all gradients over data.", "nothing to see: routers drift apart"),
    mixture("mesh-capacity-of-a-copy", "rule_.capacity(B, E));",
            "rule_.capacity(B / experts_.number(), E));",
            "Somebody counts the capacity for the tokens of one copy.",
            "a little worse: tokens are dropped"),
    mixture("mesh-tokens-in-the-other-order", "ShardedEngine(mesh.axes({\"data\", \"expert\"}))",
            "ShardedEngine(mesh.axes({\"expert\", \"data\"}))",
            "Somebody lists axes in another order: tokens are counted in one and sent in the other.",
            "stops with an error"),

    groups("mesh-color-for-key", "split(color, key, where)", "split(key, color, where)",
           "Somebody swaps the arguments of a split: an axis is the group of the other one.",
           "learns nonsense"),
    groups("mesh-joined-places-added", "key = key * axis.size + place(axis.name);",
           "key = key + place(axis.name);",
           "Somebody adds places on axes, and devices of one sum keep their old order.",
           "nothing to see with axes in the mesh's order"),
    shape("mesh-first-axis-fastest", "for (std::size_t i = axes_.size(); --i > wanted;) device",
          "for (std::size_t i = 0; i < wanted; ++i) device",
          "Somebody counts devices along the first axis first, as Fortran does.",
          "nothing to see: groups go over slow links"),
    shape("mesh-smaller-axes-first", "std::ranges::sort(factors, std::greater());",
          "std::ranges::sort(factors);", "Somebody sorts, and not in the order that the page promises.",
          "nothing to see"),
    shape("mesh-axis-not-named", "axes.push_back({name, 1});", "static_cast<void>(name);",
          "Somebody forgets the axes that the text does not name.", "stops with an error"),
    cut("mesh-outer-cut-forgotten",
        "range = {range.begin + mine.begin * width, range.begin + mine.end * width};", "range = mine;",
        "Somebody forgets where the outer piece begins.", "learns from some rows only"),
    cut("mesh-nested-cut-at-once",
        "    const Index width = pieces > 0 ? range.size() / pieces : 1;\n"
        "    const Range mine = part(range.size() / std::max<Index>(width, 1), over->num_devices(), "
        "over->device_id());\n"
        "    range = {range.begin + mine.begin * width, range.begin + mine.end * width};\n  }\n",
        "    int parts = 1, place = 0;\n    for (const MeshCut& cut : cuts) {\n"
        "      if (cut.dimension != dimension) continue;\n      parts *= cut.over->num_devices();\n"
        "      place = place * cut.over->num_devices() + cut.over->device_id();\n    }\n"
        "    const Index width = pieces > 0 ? extent / pieces : 1;\n"
        "    const Range mine = part(extent / std::max<Index>(width, 1), parts, place);\n"
        "    range = {mine.begin * width, mine.end * width};\n    static_cast<void>(over);\n  }\n",
        "Somebody cuts six rows over 2 × 2 devices into 2, 2, 1 and 1.",
        "nothing to see, or stops with an error"),
    letters("mesh-copies-in-the-norm",
            "((!std::same_as<Letters, Replicated> || mesh().place(Axis::name) == 0) && ...);",
            "((!std::same_as<Letters, Replicated> || mesh().place(Axis::name) == 0) || ...);",
            "Somebody writes “or” for “and”: a copy counts if one axis divides the tensor.",
            "nothing to see"),
    norm("norm-counts-copies-on-a-mesh", "gradient.counts_here() &&", "gradient.is_here() &&",
         "Somebody counts what a device holds, and devices hold the same.", "nothing to see"),
    rows("mesh-batch-by-rank",
         "return range_after(placement.cuts, 0, batch);", "return part(batch, num_devices(), device_id());",
         "Somebody cuts the batch over all devices: those of one tensor group read different rows.",
         "learns nonsense: rows of different samples are added"),
    rows("mesh-outer-cut-gathered-first",
         "cut = placement.cuts.rbegin(); is_here && cut != placement.cuts.rend();",
         "cut = placement.cuts.begin(); is_here && cut != placement.cuts.end();",
         "Somebody gathers the cuts in the order in which they were made.", "nothing to see: a wrong file",
         tests=ON_MESH),
    parts("mesh-part-of-the-first-cut",
          "in_whole += (part[d].begin + (is_outer", "in_whole += ((d == 0 ? part[d].begin : 0) + (is_outer",
          "Somebody reads the first columns of my rows for my columns.",
          "learns, and a checkpoint is read wrongly"),

    decoder("mesh-decoder-gradient-not-reduced", OF_WEIGHT, "gradients.put(name, std::move(dw));",
            "Somebody runs tensor parallel in several groups, and forgets that these have one network.",
            "does not compile"),
    decoder("mesh-decoder-gradient-over-tensor", OF_WEIGHT,
            "gradients.put(name, all_reduce<tensor>(std::move(dw)));",
            "Somebody names the axis of all other reductions.", "does not compile"),
    decoder("mesh-decoder-gradient-over-all-devices", OF_WEIGHT,
            "const Shape whole = dw.global_shape();\n"
            "    gradients.put(name, detail::with_letter<Addend, data, R>(mesh(), ShardedEngine::all_reduce("
            "detail::Access::take(std::move(dw))), whole));",
            "Somebody reduces over all devices: a norm counts once per device along tensor, and slices of "
            "different places are added.", "learns nonsense"),
    decoder("mesh-decoder-gradient-by-all-devices", OF_WEIGHT,
            "gradients.put(name, scale(all_reduce<data>(std::move(dw)), 1.0F / "
            "static_cast<float>(num_devices())));",
            "Somebody divides gradients by the number of all devices.", "nothing to see under Adam"),
    decoder("mesh-decoder-mean-of-my-tokens", "from_outside<W<0>, R>(std::move(dloss));",
            "from_outside<W<0>, R>(scale(std::move(dloss), static_cast<float>(kept.all_sequences) / "
            "static_cast<float>(mesh().size(data::name) * std::max<Index>(kept.tokens.sequences, 1))));",
            "Somebody takes the mean over the tokens of each device, and the mean of these means.",
            "nothing to see where all devices have as many"),
    decoder("mesh-decoder-residual-not-reduced", "accumulate(x, all_reduce<tensor>(parts_.think(",
            "accumulate(x, (parts_.think(", "Somebody forgets one of the two all-reduces of a block.",
            "does not compile"),
    decoder_blocks("mesh-decoder-norm-of-an-addend",
                   "dn = engine_->all_reduce<tensor>(std::move(dy.n));  // (T, D)   (W0, P) → (W0, R)",
                   "dn = TokenRows(dy.n.mesh(), detail::Access::take(std::move(dy.n)), "
                   "d.global_shape());",
                   "Somebody silences the compiler: the norm's gradient is that of this device's hidden "
                   "units.",
                   "learns more slowly, and copies of the norm drift apart"),
    decoder_blocks("mesh-decoder-shared-keys-not-summed",
                   "return engine_->all_reduce<tensor>(std::move(addend)); }\n  /// The gradient of n",
                   "return {addend.mesh(), detail::Access::take(std::move(addend)), "
                   "addend.global_shape()}; }\n  /// The gradient of n",
                   "Somebody silences the compiler: keys that all devices along tensor have get the gradient "
                   "of this device's queries.", "a little worse, and copies of the weights drift apart"),
    decoder_blocks("mesh-decoder-heads-by-rank", "engine_->mesh().axis(tensor::name), t.sequences",
                   "engine_->mesh(), t.sequences", "Somebody counts heads over all devices.",
                   "stops with an error"),
    decoder_blocks("mesh-decoder-groups-of-heads-cut", "decoders::TensorHeads(m_, devices).pieces()",
                   "m_.heads",
                   "Somebody cuts between any two query heads, and keys follow no longer.",
                   "stops with an error"),
    decoder_tensors("mesh-decoder-softmax-over-all-devices", "mesh.axis(tensor::name)", "mesh",
                    "Somebody takes the largest logit and the sum of powers over all devices, which have "
                    "other tokens.", "learns nonsense, or stops with an error"),
    decoder_tensors("mesh-decoder-table-from-the-first-row",
                    "scatter_add_rows(d.local(), in_slice(t.ids, here), sum);",
                    "scatter_add_rows(d.local(), in_slice(t.ids, {0, here.size()}), sum);",
                    "Somebody looks tokens up by their number in the whole vocabulary.",
                    "learns nothing of most tokens"),
    decoder_fsdp("mesh-decoder-gathered-over-tensor", "w.query = all_gather<data>(s.query);",
                 "w.query = all_gather<tensor>(s.query);", "Somebody gathers what tensor parallel divides.",
                 "does not compile"),
    decoder_fsdp("mesh-decoder-scattered-like-tensor", "detail::axis_of<L> == 0 ? 1 : 0;",
                 "detail::axis_of<L> == 1 ? 1 : 0;",
                 "Somebody cuts over data the dimension that tensor has cut.", "does not compile"),
    decoder_fsdp("mesh-decoder-table-of-one-end",
                 "accumulate(dtable, embedding_backward(d, kept.tokens, m_.vocabulary));",
                 "dtable = embedding_backward(d, kept.tokens, m_.vocabulary);",
                 "Somebody overwrites one gradient of a tied table with the other.", "learns more slowly"),
    letters("mesh-heads-cut-apart", "keeps_pieces<L> ? mesh.pieces(axis) : 0", "0",
            "Somebody cuts heads and sequences as any other dimension.", "stops with an error",
            tests=ON_MESH, train=TWO_AXES),
]
