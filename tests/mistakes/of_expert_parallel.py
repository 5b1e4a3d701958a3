"""Chapter 05: a mixture of experts, which are divided."""
from mistake import of

HERE = "chapters/05_expert/"
ONE, SEVERAL = "05_expert --variant switch", "05_expert --variant top-k"
engine = of("05 expert parallel", HERE + "expert.hpp", SEVERAL)
dispatch = of("05 dispatch", HERE + "dispatch.hpp", SEVERAL)
router = of("05 router", HERE + "router.hpp", SEVERAL)
single = of("05 single", HERE + "single_mixture.hpp", ONE + "-single")
costs = of("05 closed forms", HERE + "costs.hpp", SEVERAL)

ROUTER = "gradients.put(router_name(), all_reduce(matmul(transposed(x), dlogits)));"

ALL = [
    engine("ep-gate-forgotten", "my_rows(combine_rows(y, plan.slots, choices.gates), x)",
           "my_rows(combine_rows(y, plan.slots, rule_.top_k), x)",
           "Somebody adds up the experts' answers without their gates.",
           "a little worse: the router learns less"),
    engine("ep-gate-forgotten-backward", "dy = scale_rows(std::move(dy), choices.gates, plan.choices);", "",
           "Somebody forgets the gate in the backward pass.", "nothing to see under Adam"),
    engine("ep-gate-of-the-token", "scale_rows(std::move(dy), choices.gates, plan.choices)",
           "scale_rows(std::move(dy), choices.gates, plan.tokens)",
           "Somebody tests with one expert a token, where a choice is a token.", "a little worse"),
    engine("ep-router-without-gates", "Tensor dgates = dot_rows(dout, y, plan.slots, rule_.top_k);",
           "Tensor dgates(Shape{dout.extent(0), rule_.top_k});",
           "Somebody trains the router by the balancing loss alone.", "a little worse"),
    engine("ep-balance-of-my-batch", "balance_gradient(rule_, counts, x.global_shape()[0])",
           "balance_gradient(rule_, counts, x.local().extent(0))",
           "Somebody divides by the device's tokens, and counts those of all.", "nothing to see"),
    engine("ep-router-mean", ROUTER,
           "{\n      Replicated sum = all_reduce(matmul(transposed(x), dlogits));\n"
           "      sum.parameter() = scale(std::move(sum.parameter()), 1.0F / "
           "static_cast<float>(num_devices()));\n"
           "      gradients.put(router_name(), std::move(sum));\n    }",
           "Somebody averages the router's gradient.", "nothing to see under Adam"),
    engine("ep-dx-without-the-router", "std::move(dx) + matmul(dlogits, transposed(router_))",
           "std::move(dx)",
           "Somebody forgets that the router reads the tokens, too.", "nothing to see"),
    engine("ep-dx-of-experts-forgotten",
           "my_rows(combine_rows(dtokens, plan.slots, rule_.top_k), x);  // (b, D)\n"
           "    dtokens", "my_rows(Tensor(x.local().shape()), x);  // (b, D)\n    dtokens",
           "Somebody keeps the router's part of dL/dx alone.", "nothing to see"),
    engine("ep-experts-dealt-out", "const int owner = part_with(model_.num_experts, num_devices(), e);",
           "const int owner = static_cast<int>(e) % num_devices();",
           "Somebody deals out experts like cards, and tokens are sent to neighbouring ones.",
           "stops with an error"),
    engine("ep-relu-forgotten", "if (relu_before(l)) a = relu(std::move(a));  // (m_e, F)", "",
           "Somebody rewrites an expert, and it becomes linear.", "a little worse"),
    engine("ep-capacity-of-my-batch", "rule_.capacity(B, E));", "rule_.capacity(x.local().extent(0), E));",
           "Somebody computes the capacity from the device's tokens.", "a little worse: tokens are dropped"),
    engine("ep-all-answers-of-one", "for (Index e = mine_.begin; e < mine_.end; ++e) {\n"
           "      const std::vector<Index>& rows = route.rows[static_cast<std::size_t>(e - mine_.begin)];\n"
           "      Owned a",
           "for (Index e = mine_.begin; e < mine_.end; ++e) {\n"
           "      const std::vector<Index>& rows = route.rows[0];\n      Owned a",
           "Somebody tests with one expert a device.", "diverges: rows that were never written"),
    engine("ep-another-expert", "Owned out = matmul(a, layer(e, l));          // (m_e",
           "Owned out = matmul(a, layer(mine_.begin, l));          // (m_e",
           "Somebody takes the device's first expert for each.", "a little worse"),

    dispatch("ep-capacity-off-by-one", "Index free = capacity;", "Index free = capacity - 1;",
             "Somebody counts slots from 0.", "nothing to see: more tokens are dropped"),
    dispatch("ep-devices-before-ranks",
             "for (Index r = 0; r < top_k; ++r)\n      for (int d = 0; d < devices; ++d) {",
             "for (int d = 0; d < devices; ++d)\n      for (Index r = 0; r < top_k; ++r) {",
             "Somebody swaps two loops: device 0's second choices come before device 1's first ones.",
             "nothing to see: other tokens are dropped"),
    dispatch("ep-one-token-too-many",
             "if (static_cast<Index>(queue.size()) < counts.at(counts.kept",
             "if (static_cast<Index>(queue.size()) <= counts.at(counts.kept",
             "Somebody writes “at most” for “less than”.", "stops with an error"),
    dispatch("ep-dropped-tokens-get-slot-0", "plan.slots.assign(experts.size(), no_slot);",
             "plan.slots.assign(experts.size(), 0);",
             "Somebody fills a list with zeros: a dropped token gets the answer to another one.",
             "a little worse"),
    dispatch("ep-token-is-the-choice", "plan.tokens.push_back(choice / k);", "plan.tokens.push_back(choice);",
             "Somebody tests with one expert a token, where a choice is a token.", "stops with an error"),
    dispatch("ep-as-many-as-i-send", "route.from.push_back(route.arriving - before);",
             "route.from.push_back(outgoing);",
             "Somebody believes that a device receives from each as many tokens as it sends.",
             "stops with an error"),
    dispatch("ep-slots-never-taken", "        free -= kept;\n", "",
             "Somebody forgets to take slots away: each device may fill the expert.",
             "nothing to see: an expert takes too many"),
    dispatch("ep-ranks-forgotten", "++counts[static_cast<std::size_t>(rank * num_experts + experts[i])];",
             "++counts[static_cast<std::size_t>(0 * rank * num_experts + experts[i])];",
             "Somebody tests with one expert a token, whose rank is 0.", "stops with an error"),

    router("ep-gates-not-divided",
           "if (rule.top_k == 1) c.gates = take_columns(c.probabilities, c.experts, 1);",
           "c.gates = take_columns(c.probabilities, c.experts, rule.top_k);",
           "Somebody takes the chosen probabilities as gates, and forgets that their sum is not 1.",
           "a little worse"),
    router("ep-share-of-tokens", "static_cast<double>(counts.top_k * batch);", "static_cast<double>(batch);",
           "Somebody divides the choices by the tokens. With one expert a token these are as many.",
           "nothing to see"),
    router("ep-balance-by-what-was-kept", "counts.chosen_for(e)", "counts.kept_for(e)",
           "Somebody balances what experts took, not what tokens chose: a full expert looks balanced.",
           "nothing to see"),
    router("ep-skew-with-the-other-sign", "static_cast<float>(-rule.skew * static_cast<double>(e))",
           "static_cast<float>(rule.skew * static_cast<double>(e))",
           "Somebody raises a logit where it is to be lowered.", "nothing to see: other experts are busy",
           train=SEVERAL + " --skew 0.5"),
    router("ep-balance-forgotten",
           "Tensor dp = add_to_rows(put_columns(dgates, c.experts, num_experts), balance);",
           "(void)balance;\n    Tensor dp = put_columns(dgates, c.experts, num_experts);",
           "Somebody forgets the balancing loss where a token has one expert.", "nothing to see",
           train=ONE),
    router("ep-gate-gradient-as-logits",
           "put_columns(softmax_backward(std::move(dgates), c.gates), c.experts, num_experts);",
           "put_columns(dgates, c.experts, num_experts);",
           "Somebody forgets the derivative of the softmax over the chosen experts.", "a little worse"),

    single("ep-single-gate-forgotten", "combine_rows(y, plan.slots, choices.gates));  // (B, D)",
           "combine_rows(y, plan.slots, rule_.top_k));  // (B, D)",
           "Somebody adds up the experts' answers without their gates, in the reference itself.",
           "a little worse"),
    single("ep-single-rows-of-the-front", "assign(Rows(dtokens, rows.begin, rows.end), d.local());",
           "assign(Rows(dtokens, 0, rows.size()), d.local());",
           "Somebody writes each expert's dL/dx into the first rows.", "nothing to see"),
    single("ep-single-last-layer-alone",
           "if (l > 0 || wants_input_grad()) d = matmul(d, transposed(experts_[e][l]));",
           "if (wants_input_grad()) d = matmul(d, transposed(experts_[e][l]));",
           "Somebody saves dL/dx where nobody wants it, and the first layer needs it.",
           "stops with an error"),
]
