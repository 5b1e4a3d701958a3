"""Chapter 07: layers, each cut along its axes."""
from mistake import of

HERE = "chapters/07_layers/"


def layer(part, file, tests="layers_test"):
    return of(f"07 {part}", HERE + file, "", tests)


linear, residual = layer("linear", "linear.hpp"), layer("residual block", "residual.hpp")
rms, layer_norm = layer("RMSNorm", "rms_norm.hpp"), layer("LayerNorm", "layer_norm.hpp")
batch_norm, embedding = layer("BatchNorm", "batch_norm.hpp"), layer("embedding", "embedding.hpp")
loss, dropout = layer("cross entropy", "cross_entropy.hpp"), layer("dropout", "dropout.hpp")
# What the whole layer and its cuts share, tests on one device notice: they hold it against its definition.
heads = layer("attention", "attention_heads.hpp", "layers_test@1")
attention = layer("attention", "attention.hpp")
by_heads = layer("attention", "attention_by_heads.hpp", "layers_test@1")
grouped = layer("grouped queries", "grouped_query_attention.hpp")
pooling, lstm = layer("pooling", "pooling.hpp"), layer("LSTM", "lstm.hpp")
cell = layer("LSTM", "lstm_cell.hpp", "layers_test@1")

ALL = [
    linear("layer-inputs-averaged", "return all_reduce(matmul(x_, w_));",
           "return scale(all_reduce(matmul(x_, w_)), 1.0F / static_cast<float>(num_devices()));",
           "Somebody averages partial outputs.", "learns as if the layer were smaller"),
    residual("layer-skip-forgotten-backward", "all_reduce(matmul(dz, transposed(w0_))) + d);",
             "all_reduce(matmul(dz, transposed(w0_))));",
             "Somebody forgets that x goes both ways.", "deep networks learn slowly"),
    rms("layer-rms-divided-by-local-features",
        "return scale(whole.local().clone(), 1 / static_cast<float>(w_.global_shape()[0]));",
        "return scale(whole.local().clone(), 1 / static_cast<float>(w_.local().size()));",
        "Somebody sums over all features, and divides by those of the device.", "nothing to see"),
    rms("layer-rms-projection-forgotten",
        "const Tensor c = rounded(mean(row_dots(d, x_hat_.local())));                 // (B)",
        "const Tensor c({d.extent(0)});",
        "Somebody takes r for a constant in the backward pass of the cut.", "a little worse"),
    layer_norm("layer-norm-variance-of-the-mean",
               "auto [mean, variance] = means_of(row_sums(x.local()), row_dots(x.local(), x.local()));",
               "auto [mean, variance] = means_of(row_sums(x.local()), row_sums(x.local()));",
               "Somebody sends the wrong one of two vectors.", "not a number"),
    layer_norm("layer-norm-bias-forgotten", 'gradients.put("bias", as(b_, column_sums(dy)));', "",
               "Somebody copies RMSNorm, which has no bias.", "nothing to see"),
    layer_norm("layer-norm-bias-not-summed",
               'gradients.put("bias", over_rows(x_hat_, column_sums(dy)));',
               'gradients.put("bias", Replicated(group(), column_sums(dy)));',
               "Somebody cuts the sequence, and forgets that a norm has parameters, too.", "nothing to see"),
    batch_norm("layer-batch-norm-local-count",
               "rows_ = is_naive ? x.local().extent(0) : x.global_shape()[0];",
               "rows_ = x.local().extent(0);",
               "Somebody sums over all rows, and divides by those of the device.", "learns more slowly"),
    embedding("layer-vocabulary-offset", "token -= table_.offset();",
              "token -= is_naive ? table_.offset() : 0;",
              "Somebody looks tokens up by their number in the whole vocabulary.",
              "learns nothing of most tokens"),
    embedding("layer-embedding-gradient-not-summed", 'gradients.put("table", over_rows(x_, std::move(d)));',
              'gradients.put("table", Replicated(group(), std::move(d)));',
              "Somebody takes an embedding for a layer without weights.", "nothing to see"),
    loss("layer-label-at-the-border", "if (label < 0 || label >= z.local().extent(1)) label = no_slot;",
         "if (label <= 0 || label >= z.local().extent(1)) label = no_slot;",
         "Somebody counts labels from 1.", "one token of each device is never learned"),
    loss("layer-local-sum", "const Tensor sums = over_devices(row_sums(powers), ReduceOp::sum);",
         "const Tensor sums = row_sums(powers);",
         "Somebody forgets the second of three reductions.", "learns, with a loss that is too low"),
    dropout("layer-mask-by-local-column", "std::same_as<L, Sharded<1>> && !is_naive ? offset : 0;",
            "std::same_as<L, Sharded<1>> && is_naive ? offset : 0;",
            "Somebody counts the columns of each device from 0.", "nothing to see"),
    attention("layer-causal-mask-local",
              "const Index position = std::same_as<Rows, Sharded<1>> ? place_of(x) : 0;",
              "const Index position = is_naive ? place_of(x) : 0;",
              "Somebody counts the positions of each device from 0.", "learns more slowly"),
    attention("layer-key-gradients-of-one-device",
              "reduce_scatter(std::move(all).reshaped({like_.local().extent(0), length_, width}), "
              "ReduceOp::sum, 1)",
              "slice(std::move(all).reshaped({like_.local().extent(0), length_, width}), 1, place_of(like_), "
              "place_of(like_) + like_.local().extent(1))",
              "Somebody gathers keys, and forgets that other devices have their gradients.",
              "a little worse"),
    heads("layer-sees-the-next-token", "last.push_back(here_.first_query + i);",
          "last.push_back(here_.first_query + i + 1);",
          "Somebody takes the end of the range for excluded.", "a loss near 0, and nonsense in use"),
    heads("layer-scale-once", "return {scale(matmul(ds, head.k), scale_of_scores()),",
          "return {matmul(ds, head.k),",
          "Somebody scales scores, and forgets it on the way back to the queries.", "a little worse"),
    by_heads("layer-heads-in-turn", "of_query.push_back(h / shared_);",
             "of_query.push_back(h % mine_.size());",
             "Somebody gives key-value heads to query heads in turn.",
             "nothing to see, until it is loaded elsewhere"),
    grouped("layer-kv-head-by-local-number", "of_query.push_back(h / shared_);",
            "of_query.push_back((h - mine_.begin) / shared_);",
            "Somebody counts the query heads of each device from 0.", "a little worse"),
    pooling("layer-halo-exchanged", "return {std::move(from_above), std::move(from_below)};",
            "return {std::move(from_below), std::move(from_above)};",
            "Somebody exchanges above and below.", "nothing to see"),
    pooling("layer-halo-gradient-dropped", "const Tensor* const upwards[] = {&next, &from_below};",
            "from_below = Tensor(from_below.shape());\n"
            "    const Tensor* const upwards[] = {&next, &from_below};",
            "Somebody fetches the halo, and drops its gradient.", "nothing to see"),
    lstm("layer-cell-not-passed", "send(device_id() + to, state.c);", "send(device_id() + to, state.h);",
         "Somebody passes h twice.", "a little worse"),
    lstm("layer-state-gradient-of-one-device",
         "if constexpr (!is_naive) return reduce_scatter(std::move(addend), ReduceOp::sum, 1);\n"
         "    return slice",
         "return slice",
         "Somebody takes the device's own columns of dh, and forgets the other gates.", "a little worse"),
    cell("layer-forget-gate-backward", "sigmoid_backward(multiply(dc.clone(), s.c_before), s.f)",
         "sigmoid_backward(multiply(dc.clone(), s.g), s.f)",
         "Somebody copies a line and changes half of it.", "a little worse"),
]
