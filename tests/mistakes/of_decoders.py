"""Chapter 08: a decoder, divided in seven ways, and the layers that its engines share."""
from mistake import of

HERE, LAYERS = "chapters/08_decoder/", "chapters/engine/layers/"
GENERATION = "08_decoder.equivalence generated*"
SIZES = ("--model-dim 20 --hidden-dim 26 --heads 8 --key-heads {} --head-dim 4 --batch 8 --length 8 "
         "--blocks {}")


def engine(variant, file, options="", key_heads=4, blocks=2):
    """Mistakes in a file of the chapter, or of the layers, that a variant with these options shows."""
    sizes = SIZES.format(key_heads, blocks)
    return of(f"08 {variant}", file, f"08_decoder --variant {variant} {sizes} {options}".rstrip())


tensor = engine("tensor", HERE + "tensor.hpp")
experts_cut = engine("tensor", HERE + "tensor.hpp", "--experts 5")
shared_keys = engine("tensor", HERE + "tensor_weights.hpp", key_heads=2)
sequence = engine("tensor", HERE + "tensor_sequence.hpp", "--sequence-parallel yes --experts 5")
vocabulary = engine("tensor", HERE + "vocabulary_loss.hpp")
table = engine("tensor", LAYERS + "embedding.cpp")
slices = engine("tensor", LAYERS + "tokens.cpp")
context = engine("context", HERE + "sequence_decoder.hpp")
zigzag = engine("context", HERE + "sequence_cut.hpp", "--balance zigzag")
ring = engine("context", HERE + "ring_attention.hpp")
tokenwise = engine("context", HERE + "tokenwise.hpp")
tokenwise_experts = engine("context", HERE + "tokenwise.hpp", "--experts 5")
ulysses = engine("ulysses", HERE + "ulysses.hpp")
experts = engine("experts", HERE + "experts.hpp", "--experts 5")
route = engine("experts", HERE + "experts_route.hpp", "--experts 5")
fsdp = engine("fsdp", HERE + "fsdp.hpp")
layers = engine("layers", HERE + "layers.hpp", "--micro-batches 3", blocks=4)
stage = engine("layers", HERE + "layers_stage.hpp", "--micro-batches 3", blocks=4)
worker = engine("layers", HERE + "layers_worker.hpp", "--micro-batches 3", blocks=4)
tables = engine("tensor", HERE + "blocks.hpp")
# What all variants share.
attention = engine("context", LAYERS + "attention.cpp")
windowed = engine("context", LAYERS + "attention.cpp", "--window 5")
few_keys = engine("tensor", LAYERS + "attention.cpp", key_heads=2)
arithmetic = engine("single", LAYERS + "arithmetic.hpp")
norm = engine("context", LAYERS + "rms_norm.cpp")
loss = engine("context", LAYERS + "cross_entropy.cpp")
swiglu = engine("context", LAYERS + "gate.cpp")
choice = engine("experts", LAYERS + "expert_choice.cpp", "--experts 5")
mean = engine("context", "chapters/engine/loss.cpp")
model = of("08 generation", LAYERS + "language_model.hpp", tests=GENERATION)
cache = of("08 generation", LAYERS + "key_value_cache.hpp", tests=GENERATION)
greedy = of("08 generation", LAYERS + "greedy.cpp", tests=GENERATION)

ALL = [
    tensor("dec-feed-forward-reduced-twice", "accumulate(x, all_reduce(think(b, x, k)));",
           "accumulate(x, all_reduce(all_reduce(think(b, x, k))));",
           "Somebody moves the reduction into a call, and leaves the old one.", "does not compile"),
    tensor("dec-residual-twice", "accumulate(x, all_reduce(attend(b, x, kept.tokens, k)));",
           "accumulate(x, all_reduce(attend(b, x, kept.tokens, k)) + x);",
           "Somebody adds the residual stream in the layer, and again around it.", "learns more slowly"),
    tensor("dec-skip-forgotten-backward",
           "accumulate(d, think_backward(b, d, kept.blocks.back(), gradients));",
           "d = think_backward(b, d, kept.blocks.back(), gradients);",
           "Somebody forgets that the residual stream goes around the feed-forward, too.",
           "deep networks learn slowly"),
    tensor("dec-value-gradient-of-keys", "accumulate(of_keys, matmul(dv, transposed(w.value)));",
           "accumulate(of_keys, matmul(dv, transposed(w.key)));",
           "Somebody copies a line and changes half of it.", "a little worse"),
    experts_cut("dec-gates-gradient-not-reduced", "Replicated dgates = all_reduce(std::move(dy.gates));",
                "Partial dgates = std::move(dy.gates);",
                "Somebody believes that what the router chose is the same everywhere, and so is its "
                "gradient.",
                "does not compile"),
    experts_cut("dec-gates-gradient-averaged", "Replicated dgates = all_reduce(std::move(dy.gates));",
                "Replicated dgates = scale(all_reduce(std::move(dy.gates)), "
                "1.0F / static_cast<float>(num_devices()));",
                "Somebody averages the gradient of what every device has.", "the router learns more slowly"),
    shared_keys("dec-key-gradients-averaged", "return engine.all_reduce(std::move(addend), where);  // P → R",
                "return scale(engine.all_reduce(std::move(addend), where), "
                "1.0F / static_cast<float>(engine.num_devices()));",
                "Somebody averages the gradients of keys that several devices share.", "nothing to see"),
    sequence("dec-router-gradient-not-reduced", "all_reduce(matmul(transposed(k.f), dlogits)));",
             "matmul(transposed(k.f), dlogits));",
             "Somebody takes the router, which every device has, for a layer without slices.",
             "does not compile"),
    vocabulary("dec-labels-by-global-column", "in_slice(tokens.labels, {first, first + mine.extent(1)});",
               "in_slice(tokens.labels, {0, mine.extent(1)});",
               "Somebody looks labels up by their number in the whole vocabulary.",
               "learns nothing of most tokens"),
    vocabulary("dec-largest-logit-local",
               "const Tensor largest = over_devices(row_max(mine), ReduceOp::max);                          "
               "// (T)",
               "const Tensor largest = row_max(mine);",
               "Somebody subtracts the largest logit of each device.", "learns nonsense"),
    vocabulary("dec-sum-local", "const Tensor sums = over_devices(row_sums(kept.p), ReduceOp::sum);",
               "const Tensor sums = row_sums(kept.p);",
               "Somebody forgets the last of three reductions.", "learns, with a loss that is too low"),
    vocabulary("dec-label-counted-on-each-device",
               "const Tensor of_labels = over_devices(logits_of_labels(mine, kept.labels), ReduceOp::sum);",
               "std::vector<Index> columns = kept.labels;\n"
               "  for (Index& column : columns) column = std::max<Index>(column, 0);\n"
               "  const Tensor of_labels = over_devices(logits_of_labels(mine, columns), ReduceOp::sum);",
               "Somebody reads a logit for each label, also where the label is another device's.",
               "a wrong loss, and the right gradients"),
    table("dec-vocabulary-offset", "return {table.offset(), table.offset() + table.local().extent(0)};",
          "return {0, table.local().extent(0)};",
          "Somebody looks tokens up by their number in the whole vocabulary.",
          "learns nothing of most tokens"),
    slices("dec-first-token-of-a-slice", "token >= slice.begin && token < slice.end ?",
           "token > slice.begin && token < slice.end ?",
           "Somebody counts tokens from 1.", "one token of each device is never learned"),
    slices("dec-rows-of-others-not-zeroed", "token < slice.end ? token - slice.begin : no_slot);",
           "token < slice.end ? token - slice.begin : 0);",
           "Somebody reads some row for tokens of other devices, and forgets to make it zero.",
           "learns nonsense"),
    tables("dec-tied-table-counted-once", "    accumulate(embedding, std::move(head));\n  else\n",
           "    head = E();\n  else\n",
           "Somebody forgets that a tied table is used at both ends.", "learns more slowly"),

    context("dec-positions-restart",
            "kept.tokens = read(input, m_.vocabulary).at(cut.places(device_id()));",
            "kept.tokens = read(input, m_.vocabulary).at(cut.places(device_id()));\n"
            "    for (std::size_t i = 0; i < kept.tokens.positions.size(); ++i)\n"
            "      kept.tokens.positions[i] = static_cast<Index>(i);",
            "Somebody turns positions on each device from 0.", "a little worse"),
    context("dec-key-gradient-not-turned-back",
            "dk = rotary_backward(std::move(dk), t.sequences, t.positions, rotary_of(m_));", "",
            "Somebody turns the gradient of queries back, and forgets that of keys.", "a little worse"),
    context("dec-tied-table-of-the-head",
            "accumulate(dembedding, std::move(dhead));  // the table is used twice",
            "dembedding = std::move(dhead);",
            "Somebody overwrites one gradient of a tied table with the other.", "learns more slowly"),
    zigzag("dec-zigzag-as-contiguous", "(first_sequence + b) * cut.length + run.begin",
           "(first_sequence + b) * cut.length + cut.places_before(device)",
           "Somebody balances the sequence, and finds labels as before.", "learns nonsense"),
    ring("dec-ring-mask-local", "attend({q, ks, vs, at_q, ring.at(step)}, heads, softmax);",
         "std::vector<Index> here = at_q;\n"
         "    for (std::size_t i = 0; i < here.size(); ++i) here[i] = static_cast<Index>(i);\n"
         "    attend({q, ks, vs, here, ring.at(step)}, heads, softmax);",
         "Somebody counts the queries of each device from 0, and the mask is that of the first device.",
         "learns more slowly"),
    ring("dec-ring-other-direction", "return (group_.device_id() - step + steps()) % steps();",
         "return (group_.device_id() + step) % steps();",
         "Somebody believes that pieces come from the right.", "stops with an error"),
    ring("dec-ring-keys-twice", "group_.post_send(right, std::move(piece.k)), "
         "group_.post_send(right, std::move(piece.v)),",
         "group_.post_send(right, piece.k.clone()), group_.post_send(right, std::move(piece.k)),",
         "Somebody copies a call, and values never travel.", "learns more slowly"),
    ring("dec-ring-own-values", "attend({q, ks, vs, at_q, ring.at(step)}, heads, softmax);",
         "attend({q, ks, vs.shape() == v.shape() ? v : vs, at_q, ring.at(step)}, heads, softmax);",
         "Somebody takes the device's own values for those that arrived.",
         "learns more slowly"),
    ring("dec-ring-sums-overwritten",
         "sum = {add(std::move(sum.k), before.k), add(std::move(sum.v), before.v)};",
         "sum.k = add(std::move(sum.k), before.k);",
         "Somebody adds what arrives to the gradient of keys, and not to that of values.", "a little worse"),
    ring("dec-ring-gradient-not-home", "if (ring.steps() > 1) sum = sums.arrived();  // of my own piece",
         "if (ring.steps() > 1) sums.arrived();",
         "Somebody takes N − 1 steps backward, as forward: gradients end at the left neighbour.",
         "learns more slowly"),
    ring("dec-ring-source-backward",
         "attend_backward(dout, o, {q, ks, vs, at_q, ring.at(step)}, heads, softmax);",
         "attend_backward(dout, o, {q, ks, vs, at_q, "
         "ring.at((ring.steps() - step) % ring.steps())}, heads, softmax);",
         "Somebody goes around the ring backwards in the backward pass, and pieces do not.",
         "stops with an error"),
    tokenwise("dec-norm-gradient-of-one-device",
              "put(name, std::move(dw), gradients);\n    return dx;",
              "gradients.put(name, Replicated(group(), detail::Access::take(std::move(dw))));\n"
              "    return dx;",
              "Somebody forgets that a norm's weights see only the device's tokens.", "nothing to see"),
    tokenwise("dec-gradients-averaged", "gradients.put(name, all_reduce(std::move(dw)));",
              "gradients.put(name, scale(all_reduce(std::move(dw)), 1.0F / "
              "static_cast<float>(num_devices())));",
              "Somebody averages gradients over devices that divide sequences, as those that divide the "
              "batch.",
              "nothing to see under Adam"),
    tokenwise("dec-gate-for-up",
              'put(feed_forward_name(m_, b, expert, "gate"), std::move(d.gate), gradients);',
              'put(feed_forward_name(m_, b, expert, "gate"), std::move(d.up), gradients);\n    d.up = '
              'std::move(d.gate);',
              "Somebody exchanges the two matrices that have one shape.", "learns more slowly"),
    tokenwise_experts("dec-router-forgotten-backward",
                      "dn = std::move(dy.n) + matmul(dlogits, transposed(w.router));",
                      "dn = std::move(dy.n);",
                      "Somebody forgets that tokens reach the loss through the router, too.",
                      "a little worse"),
    ulysses("dec-heads-exchanged",
            "{B, S, here, of_unit}), {B, S, units, of_unit},\n                       first);",
            "{B, S, here, of_unit}), {B, S, units, of_unit},\n                       first);\n"
            "    if (here > 1) {\n"
            "      const Tensor one = slice(by_head.local(), 2, 0, 1), more = slice(by_head.local(), 2, 1, "
            "here);\n"
            "      const std::array<const Tensor*, 2> both = {&more, &one};\n"
            "      by_head = Sharded<2>(group(), concatenate(both, 2), {B, S, units, of_unit}, first);\n"
            "    }",
            "Somebody joins heads in the order in which they arrive, which is another one.",
            "nothing to see, until it is loaded elsewhere"),
    ulysses("dec-values-for-keys",
            "o = shard::attention(kept.q, keys, values, at, at_keys, my_heads(cut), kept.softmax);\n    } "
            "else {",
            "o = shard::attention(kept.q, values, keys, at, at_keys, my_heads(cut), kept.softmax);\n    } "
            "else {",
            "Somebody exchanges two arguments of one type.", "learns more slowly"),
    ulysses("dec-key-gradient-for-value-gradient",
            "return {to_tokens(std::move(dq), cut, units()), to_tokens(std::move(dk), cut, units()),\n"
            "              to_tokens(std::move(dv), cut, units())};",
            "return {to_tokens(std::move(dq), cut, units()), to_tokens(std::move(dv), cut, units()),\n"
            "              to_tokens(std::move(dk), cut, units())};",
            "Somebody returns the gradients in another order.", "learns more slowly"),
    ulysses("dec-queries-cut-by-themselves", "kept.q = to_heads(std::move(q), cut, units());",
            "kept.q = to_heads(std::move(q), cut, m_.heads);",
            "Somebody divides query heads evenly, and not with the key-value head that they share.",
            "stops with an error"),

    experts("dec-answers-in-order",
            "my_rows(combine_rows(k.answers, k.choice.slots(), k.choice.gates), k.f);",
            "my_rows(combine_rows(k.answers, k.choice.in_order(), k.choice.gates), k.f);",
            "Somebody takes a permutation for its inverse on the way back.", "diverges"),
    experts("dec-gates-forgotten-backward",
            "dy = m_.how.rounded(scale_rows(std::move(dy), k.choice.gates, k.choice.in_order()));", "",
            "Somebody forgets that an answer was multiplied by its gate.", "nothing to see under Adam"),
    experts("dec-router-forgotten-by-tokens",
            "df = std::move(df) + matmul(dlogits, transposed(w.router));", "(void)w;",
            "Somebody forgets that tokens reach the loss through the router, too.", "a little worse"),
    experts("dec-expert-gradients-over-all-devices",
            "put_experts(m_, b, block(b).experts, std::move(dw), gradients);",
            "for (OwnedExpertGradients& d : dw)\n"
            "      d.down = scale(std::move(d.down), 1.0F / static_cast<float>(num_devices()));\n"
            "    put_experts(m_, b, block(b).experts, std::move(dw), gradients);",
            "Somebody averages an expert's gradient over devices that do not have the expert.",
            "nothing to see under Adam"),
    route("dec-counts-swapped", "    route.from.push_back(route.arriving - before);\n  }\n",
          "    route.from.push_back(route.arriving - before);\n  }\n  std::swap(route.to, route.from);\n",
          "Somebody exchanges what a device sends and what it receives.", "stops with an error"),
    route("dec-rows-by-expert",
          "    route.from.push_back(route.arriving - before);\n  }\n",
          "    route.from.push_back(route.arriving - before);\n  }\n"
          "  Index next = 0;\n"
          "  for (std::vector<Index>& of_expert : route.rows)\n"
          "    for (Index& row : of_expert) row = next++;\n",
          "Somebody believes that rows arrive by expert: they arrive by device, and then by expert.",
          "experts learn other experts' tokens"),

    fsdp("dec-fsdp-gradients-averaged",
         "leaving.emplace_back(name, reduce_scatter_async<0>(std::move(gradient)));",
         "leaving.emplace_back(name, reduce_scatter_async<0>(\n"
         "        scale(std::move(gradient), 1.0F / static_cast<float>(num_devices()))));",
         "Somebody averages gradients, and the loss has already been divided by all tokens.",
         "nothing to see under Adam"),
    fsdp("dec-fsdp-next-block",
         "      accumulate(x, think(m_, w, x, k));\n      note_choice(b, k.mixture.choice, kept.tokens);\n"
         "      if (!is_last) w = arrived_block(next);  // frees this block's\n",
         "      if (!is_last) w = arrived_block(next);\n"
         "      accumulate(x, think(m_, w, x, k));\n      note_choice(b, k.mixture.choice, kept.tokens);\n",
         "Somebody takes the next block's weights as soon as they are there.", "learns more slowly"),
    fsdp("dec-fsdp-same-block-again", "if (b > 0) next = gather_block(b - 1);  // S0 → R, some time",
         "if (b > 0) next = gather_block(b);",
         "Somebody gathers a block again that is there already.", "learns more slowly"),
    fsdp("dec-fsdp-tied-table-counted-once",
         "if (!m_.is_tied) leave(head_name(), std::exchange(dtable, Partial()), leaving);",
         "Partial of_head = std::exchange(dtable, Partial());\n"
         "    if (!m_.is_tied) leave(head_name(), std::move(of_head), leaving);",
         "Somebody forgets that a tied table is used at both ends.", "learns more slowly"),

    layers("dec-labels-to-the-next-stage", "if (!stage_.is_last()) send(last(), labels_of(tokens));",
           "if (!stage_.is_last()) send(device_id() + 1, labels_of(tokens));",
           "Somebody tests with two devices, where the next one is the last.", "hangs"),
    layers("dec-copy-of-the-table-not-updated",
           "if (device_id() == last()) assign(Rows(stage_.w.own_head.parameter()), receive(0));",
           "if (device_id() == last()) (void)receive(0);",
           "Somebody forgets that the last device has a copy of a tied table.", "learns more slowly"),
    layers("dec-copy-s-gradient-dropped",
           "if (has_copy() && stage_.is_first()) accumulate(dw.embedding, Owned::mine(group(), "
           "receive(last())));",
           "if (has_copy() && stage_.is_first()) (void)receive(last());",
           "Somebody lets a tied table learn as an embedding alone.", "learns more slowly"),
    stage("dec-last-micro-batch-alone", "accumulate(sum, std::move(**next++));",
          "sum = std::move(**next++);",
          "Somebody overwrites gradients where they are to be added.", "learns more slowly"),
    worker("dec-rows-of-the-first-micro-batch",
           "const Index first_row = sequences_of(m).begin * batch_.length;",
           "const Index first_row = sequences_of(m).begin;",
           "Somebody counts sequences where the loss counts tokens.", "nothing to see"),

    attention("dec-sees-the-next-token",
              "for (Index at : last) first.push_back(heads.window ? at - *heads.window + 1 : 0);",
              "for (Index& at : last) first.push_back(heads.window ? at - *heads.window + 1 : 0), ++at;",
              "Somebody takes the end of the range for excluded.", "a loss near 0, and nonsense in use"),
    windowed("dec-window-one-more", "first.push_back(heads.window ? at - *heads.window + 1 : 0);",
             "first.push_back(heads.window ? at - *heads.window : 0);",
             "Somebody does not count the token itself.", "nothing to see"),
    windowed("dec-window-ignored", "first.push_back(heads.window ? at - *heads.window + 1 : 0);",
             "(void)at, first.push_back(0);",
             "Somebody forgets the window.", "a little better"),
    few_keys("dec-keys-of-head-0", "of.push_back(h / shared - first_key_head);",
             "of.push_back(0 * (h / shared - first_key_head));",
             "Somebody tests with one key-value head.", "a little worse"),
    few_keys("dec-key-head-by-local-number", "of.push_back(h / shared - first_key_head);",
             "of.push_back((h - mine.begin) / shared + 0 * first_key_head);",
             "Somebody counts the query heads of each device from 0.", "a little worse"),
    attention("dec-rescaling-forgotten",
              "weighted = add(scale_rows(std::move(weighted), factor), matmul(powers, v));",
              "weighted = add(std::move(weighted), matmul(powers, v));",
              "Somebody rescales the sum of powers, and forgets that of values.", "learns more slowly"),
    attention("dec-dropped-row-sums",
              "ds = add_to_columns(std::move(ds), scale(row_dots(head.dout, head.o), -1));",
              "(void)head.o;",
              "Somebody takes the derivative of a power for that of a softmax.", "learns more slowly"),
    attention("dec-scale-once", "  ds = scale(std::move(ds), how.score_scale);\n", "",
              "Somebody scales scores, and forgets it on the way back.", "nothing to see under Adam"),
    arithmetic("dec-scale-missing", "how.score_scale = 1 / std::sqrt(static_cast<float>(head_dim));",
               "(void)head_dim;",
               "Somebody forgets to divide scores by √d.", "a little worse"),
    norm("dec-epsilon-left-out", "inverse_root(mean(row_dots(x, x), w.size()), 1, epsilon);",
         "inverse_root(mean(row_dots(x, x), w.size()), 1, 0 * epsilon);",
         "Somebody leaves out what matters only where a row is near 0.", "nothing to see"),
    norm("dec-norm-projection-forgotten", "d = subtract(std::move(d), scale_rows(kept.x_hat.clone(), c));",
         "(void)c;",
         "Somebody takes the root for a constant in the backward pass.", "a little worse"),
    loss("dec-token-without-a-label", "if (tokens.labels[i] == Tokens::no_label) d[i] = 0;",
         "if (tokens.labels[i] == Tokens::no_label) d[i] += 0;",
         "Somebody gives tokens without a label a loss of 0, and the gradient of all others.",
         "learns padding"),
    swiglu("dec-activation-for-its-derivative",
           "return gate == Gate::gelu ? gelu_backward(std::move(dh), z) : silu_backward(std::move(dh), z);",
           "return multiply(std::move(dh), activation(z, gate));",
           "Somebody multiplies by the activation where its derivative is meant.", "learns more slowly"),
    choice("dec-gates-not-renormalised", "const Tensor sums = row_sums(powers);",
           "const Tensor sums = row_sums(exponentials(logits.clone(), largest, how.base));",
           "Somebody takes the softmax over all experts, as Switch Transformers do.", "nothing to see"),
    mean("dec-mean-of-local-tokens",
         "const auto each = static_cast<float>(1 / static_cast<double>(labelled_));",
         "const auto each = static_cast<float>(1 / static_cast<double>(std::max<Index>(losses.size(), 1)));\n"
         "  (void)labelled_;",
         "Somebody divides by the tokens of the device.", "nothing to see under Adam"),

    model("dec-generated-at-position-0",
          "for (Index& position : tokens.positions) position += next_position_;",
          "", "Somebody reads the next token as the first of a sequence.", "nothing: training has no cache"),
    model("dec-position-of-the-pass", "if (continues_) next_position_ += tokens.length;",
          "if (continues_) ++next_position_;",
          "Somebody counts passes, and the first one reads a whole prompt.",
          "nothing: training has no cache"),
    model("dec-cache-of-the-last-sequence", "    next_position_ = 0;\n    cache_.keep(wanted);",
          "    next_position_ = 0;\n    if (wanted) cache_.keep(wanted);",
          "Somebody leaves the keys of a sequence to the next one.", "nothing: training has no cache"),
    cache("dec-cached-keys-for-values", "entry.v = joined(entry.v, v);", "entry.v = joined(entry.v, k);",
          "Somebody copies a line and changes half of it.", "nothing: training has no cache"),
    cache("dec-cached-positions-overwritten", "entry.at.insert(entry.at.end(), at.begin(), at.end());",
          "entry.at.resize(static_cast<std::size_t>(detail::Access::tensor(entry.k).extent(0)), at.back());",
          "Somebody gives all tokens of a pass the position of its last one.",
          "nothing: training has no cache"),
    greedy("dec-token-by-local-column",
           "if (of_last[i] > logit_) logit_ = of_last[i], token_ = first_column + static_cast<Index>(i);",
           "if (of_last[i] > logit_) logit_ = of_last[i], token_ = static_cast<Index>(i);",
           "Somebody takes a column of the device's logits for a token.",
           "nothing: training chooses no token"),
    greedy("dec-likeliest-of-device-0", "if (all[i] > all[best] ||", "if (best > all.size() ||",
           "Somebody asks the first device, which has not all logits.", "nothing: training chooses no token"),
]
