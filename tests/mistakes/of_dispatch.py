"""chapters/engine/dispatch: which device holds which module, and how weights from elsewhere come in."""
from mistake import of

HERE = "chapters/engine/dispatch/"
MAPS, RUNS = "safetensors_test dispatch*", "dispatched_test"
filling = of("dispatch", HERE + "fill_places.cpp", "", MAPS)
balance = of("dispatch", HERE + "balanced_memory.cpp", "", MAPS)
weights = of("dispatch", HERE + "offloaded_weights.cpp", "", "safetensors_test offloaded*, dispatched_test")
model = of("dispatch", "chapters/10_checkpoints/dispatched.hpp", "", RUNS)
renamed = of("dispatch", "chapters/engine/foreign_model.cpp", "", "safetensors_test renamed*")

ALL = [
    filling("no-room-for-what-comes-in", "places_[current_].bytes - (keeps_free() ? largest_ : 0)",
            "places_[current_].bytes",
            "Somebody fills the main device, and leaves no room for a layer that comes from the host.",
            "stops with an error"),
    filling("tied-left-behind", "if (!is_disk() && used_ + bytes > limit()) return false;",
            "if (!is_disk() && used_ + sizes_[item.path] > limit()) return false;",
            "Somebody asks whether a module fits, and not whether those that are tied to it do.",
            "stops with an error"),
    balance("share-without-a-block-more", "static_cast<Index>(1.25 * ", "static_cast<Index>(0.0 * ",
            "Somebody gives each device its share of the bytes. Whole blocks do not fit so.", "slower"),
    balance("last-device-capped", "if (device != devices.back() && !(", "if (!(",
            "Somebody caps the last device too, which takes the rest.", "slower"),
    weights("same-part-again", "read_ahead(part + 1);", "read_ahead(part);",
            "Somebody reads ahead what has just run.", "stops with an error"),
    weights("piece-at-the-beginning", "into.values.begin() + in_whole", "into.values.begin() + in_piece",
            "Somebody tests with weights that are one piece.", "other text"),
    model("sent-to-itself-alone", "const bool is_sent = !reads_tokens(p) && holder != next;",
          "const bool is_sent = !reads_tokens(p) && holder != next && p > 1;",
          "Somebody forgets the way from the embedding to the first block.", "stops with an error"),
    renamed("rows-of-a-transposed-matrix", "return theirs.is_transposed ? 1 :", "return theirs.is_transposed ? 0 :",
            "Somebody reads pieces of rows, which are columns of the file.", "nothing to see: slow"),
]
