"""chapters/engine/checkpoints: what is saved of a training, and how it goes on."""
from mistake import of

HERE = "chapters/engine/checkpoints/"
SAVED = "02_data_parallel.equivalence saved*, 03_tensor_parallel.equivalence saved*, 06_fully_sharded.equivalence saved*"
PAIRS = "saved_pairs_test what*"
plan = of("checkpoints", HERE + "writing_plan.cpp", "", SAVED)
gathering = of("checkpoints", HERE + "gathering.cpp", "", PAIRS)
save = of("checkpoints", HERE + "save.cpp", "", SAVED)
opened = of("checkpoints", HERE + "saved_checkpoint.cpp", "", PAIRS)
training = of("checkpoints", HERE + "training_checkpoint.cpp", "", SAVED)
manifest = of("checkpoints", HERE + "manifest.cpp", "", "safetensors_test manifest*")
trainable = of("checkpoints", "chapters/engine/trainable.hpp", "", SAVED)
ranges = of("checkpoints", "chapters/engine/ranges.hpp", "", "03_tensor_parallel.equivalence")

ALL = [
    trainable("saved-rows-of-the-first-device",
              "t.ranges[0] = {t.ranges[0].begin + rows.begin, t.ranges[0].begin + rows.end};",
              "t.ranges[0] = {t.ranges[0].begin, t.ranges[0].begin + rows.size()};",
              "Somebody counts a device's rows from its own first one.", "stops with an error"),
    plan("saved-by-every-holder", "holders[name][numbers].push_back(static_cast<int>(device));",
         "holders[name][numbers] = {static_cast<int>(all.size()) - 1};",
         "Somebody lets the last device write what all devices hold, also what it does not hold.",
         "stops with an error"),
    gathering("saved-without-its-first-row", "mine->rows.tensor->read((mine->rows.begin + piece.first_row) * row, values);",
              "mine->rows.tensor->read(piece.first_row * row, values);",
              "Somebody saves the first rows of a tensor for those that this device updates.",
              "a jump where it goes on"),
    gathering("sent-without-its-first-row", "const Index first = mine.rows.begin + piece.first_row;",
              "const Index first = piece.first_row;",
              "Somebody sends the first rows of a tensor for those that this device updates.",
              "a jump where it goes on"),
    gathering("columns-put-like-rows", "std::copy_n(values.begin() + in_part, length, whole.begin() + in_whole);",
              "std::copy_n(values.begin() + in_part, length, whole.begin() + in_part);",
              "Somebody puts the columns of a device one behind the other.", "starts anew"),
    save("written-from-the-first-row", "for (Index at = rows.begin * row; at < end;",
         "for (Index at = 0; at < end - rows.begin * row;",
         "Somebody writes the first rows of a tensor for those that this device updates.",
         "a jump where it goes on"),
    opened("read-from-its-own-first-index", ".read(name, inside(both, ranges));", ".read(name, inside(both, both));",
           "Somebody reads the beginning of each file's part.", "a jump where it goes on"),
    opened("put-at-the-beginning", "for_each_run(shape, inside(both, part),", "for_each_run(shape, inside(both, both),",
           "Somebody puts what each file has at the beginning.", "a jump where it goes on"),
    training("step-forgotten", "optimizer.go_on_after(manifest.training ? manifest.training->step : 0);",
             "optimizer.go_on_after(0);",
             "Somebody saves moments, and not how often they were updated.", "a bump where it goes on"),
    training("state-of-the-parameters", "state[i] = stored->part(t.name + '/' + kept[i], t.ranges);",
             "stored->part(t.name + '/' + kept[i], t.ranges);",
             "Somebody loads the optimizer's state, and lets it go.", "a bump where it goes on"),
    manifest("parts-may-overlap", "if (do_overlap(parts[i], parts[j]))",
             "if (parts[i] == parts[j])",
             "Somebody counts elements, and does not ask if each is there once.", "nothing to see"),
    manifest("parts-may-have-holes", 'if (elements == num_elements(whole)) return "";',
             'if (elements <= num_elements(whole)) return "";',
             "Somebody accepts that a device's file is gone from the list.", "starts anew in a part"),
    ranges("run-of-cut-rows", "if (cut > 0) length *= part[--cut].size();",
           "if (cut > 0) length *= whole[--cut];",
           "Somebody takes the columns of all devices for those of one.", "stops with an error"),
]
