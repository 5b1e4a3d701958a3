//// 10.1 files are filled in place
std::vector<std::vector<std::string>> split_by_size(const std::vector<NamedSize>& tensors,
                                                    std::uint64_t most) {
  std::vector<std::string> current;
  std::vector<std::vector<std::string>> finished;
  std::uint64_t left = most;
  for (const NamedSize& tensor : tensors) {
    if (tensor.bytes > most) {
      finished.push_back(std::vector<std::string>{tensor.name});
    } else {
      if (tensor.bytes > left) {
        finished.push_back(current);
        current.clear();
        left = most;
      }
      current.push_back(tensor.name);
      left -= tensor.bytes;
    }
  }
  if (current.size() > 0) finished.push_back(current);
  return finished;
}
//// 10.1 a lambda closes a file
std::vector<std::vector<std::string>> split_by_size(const std::vector<NamedSize>& tensors,
                                                    std::uint64_t most) {
  std::vector<std::vector<std::string>> files;
  std::vector<std::string> file;
  std::uint64_t size = 0;
  auto finish = [&] {
    if (!file.empty()) files.push_back(std::exchange(file, {}));
    size = 0;
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = tensors[i].bytes;
    if (bytes > most) {
      files.push_back({tensors[i].name});
      continue;
    }
    if (size + bytes > most) finish();
    file.push_back(tensors[i].name);
    size += bytes;
  }
  finish();
  return files;
}
//// 10.1 a helper asks for room
static bool has_room(std::uint64_t used, std::uint64_t more, std::uint64_t most) {
  return more <= most && used <= most - more;
}
std::vector<std::vector<std::string>> split_by_size(const std::vector<NamedSize>& tensors,
                                                    std::uint64_t most) {
  std::vector<std::vector<std::string>> files;
  std::vector<std::string> open;
  std::uint64_t used = 0;
  for (auto tensor = tensors.begin(); tensor != tensors.end(); ++tensor) {
    if (tensor->bytes > most) {
      files.emplace_back(1, tensor->name);
    } else if (has_room(used, tensor->bytes, most)) {
      open.push_back(tensor->name);
      used += tensor->bytes;
    } else {
      files.push_back(std::move(open));
      open = {tensor->name};
      used = tensor->bytes;
    }
  }
  if (!open.empty()) files.push_back(std::move(open));
  return files;
}
//// 10.1 by places, in two passes
std::vector<std::vector<std::string>> split_by_size(const std::vector<NamedSize>& tensors,
                                                    std::uint64_t most) {
  std::vector<std::vector<std::string>> files;
  std::size_t next = 0;
  std::vector<std::string> open;
  while (next < tensors.size()) {
    std::uint64_t sum = 0;
    open.clear();
    while (next < tensors.size()) {
      if (tensors[next].bytes > most) {
        files.push_back({tensors[next].name});
      } else if (sum + tensors[next].bytes <= most) {
        sum += tensors[next].bytes;
        open.push_back(tensors[next].name);
      } else {
        break;
      }
      ++next;
    }
    if (!open.empty()) files.push_back(open);
  }
  return files;
}
//// 10.1 sums that are kept
std::vector<std::vector<std::string>> split_by_size(const std::vector<NamedSize>& tensors,
                                                    std::uint64_t most) {
  std::vector<std::vector<std::string>> files, opened(1);
  std::vector<std::uint64_t> sums(1, 0);
  for (const auto& [name, bytes] : tensors) {
    if (bytes > most) {
      files.push_back({name});
      continue;
    }
    if (sums.back() + bytes > most) {
      files.push_back(opened.back());
      opened.emplace_back();
      sums.push_back(0);
    }
    opened.back().push_back(name);
    sums.back() += bytes;
  }
  if (!opened.back().empty()) files.push_back(opened.back());
  return files;
}
