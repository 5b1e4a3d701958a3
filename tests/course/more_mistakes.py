"""Mistakes in exercises of which tests/mistakes has few or none: students make these."""
from mistake import of

RING, SINGLE, SUMMA = ("chapters/00_collectives/ring.hpp", "chapters/01_single_device/single_device.hpp",
                       "chapters/09_mesh/summa.hpp")
ring, single, summa = of("00 ring", RING), of("01 single", SINGLE), of("09 summa", SUMMA)

MORE = [
    ring("ring-one-step-less", "step <= 2 * (n - 1)", "step < 2 * (n - 1)", "Somebody counts steps from 0.", ""),
    ring("ring-adds-to-the-end", "const bool reduces = step < n;", "const bool reduces = true;",
         "Somebody forgets that the second round replaces.", ""),
    ring("ring-first-chunk-again", "group.send_async(chunks[place(me - step)]",
         "group.send_async(chunks[place(me - 1)]", "Somebody sends the same chunk in each step.", ""),
    single("single-relu-in-front", "if (relu_before(l)) a = relu(std::move(a));  // (B, F)   h = max(z, 0)",
           "a = relu(std::move(a));", "Somebody puts a ReLU before each layer.", ""),
    single("single-no-relu", "if (relu_before(l)) a = relu(std::move(a));  // (B, F)   h = max(z, 0)", "",
           "Somebody multiplies only.", ""),
    single("single-mask-forgotten", "if (relu_before(l)) d = relu_backward(std::move(d), a);", "",
           "Somebody takes the derivative of a product only.", ""),
    single("single-weights-not-transposed", "matmul(transposed(a), d)", "matmul(transposed(d), a)",
           "Somebody exchanges the operands.", ""),
    single("single-dx-of-layer-0-only-if-deep", "if (l > 0 || wants_input_grad())", "if (l > 0)",
           "Somebody never computes dL/dx.", ""),
    summa("summa-adds-nothing", "matmul_accumulate(of_a, of_b, c);", "c = matmul(of_a, of_b);",
          "Somebody keeps the last panel's product alone.", ""),
    summa("summa-rows-of-columns", "spread(mesh.axis(rows::name), b.local(), 0, panel.of_rows)",
          "spread(mesh.axis(rows::name), b.local(), 0, panel.of_columns)",
          "Somebody takes the wrong piece of the panel.", ""),
    summa("summa-joined-along-rows", "joined(std::move(mine), 1, my_block_of(mesh, global))",
          "joined(std::move(mine), 0, my_block_of(mesh, global))",
          "Somebody joins panels along the other axis.", ""),
]
