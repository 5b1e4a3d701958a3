#include "engine/weights/foreign_model.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shard {

namespace {

/// \throws Error file when a tensor to transpose is no matrix, or one to make a row is no vector
std::map<std::string, Shape> our_shapes(const Checkpoint& stored, const ForeignNames& names,
                                        const std::string& source) {
  std::map<std::string, Shape> shapes;
  for (const auto& [ours, theirs] : names) {
    const Shape shape = stored.shape(theirs.name);
    if ((theirs.is_transposed && shape.size() != 2) || (theirs.is_vector && shape.size() != 1))
      throw Error(Code::file, "{}: {}: expected a {}, given {}", source, theirs.name,
                  theirs.is_vector ? "vector" : "matrix", to_string(shape));
    shapes[ours] = theirs.is_vector       ? Shape{1, shape[0]}
                   : theirs.is_transposed ? Shape{shape[1], shape[0]}
                                          : shape;
  }
  return shapes;
}

class RenamedCheckpoint : public ListedCheckpoint {
 public:
  RenamedCheckpoint(std::unique_ptr<Checkpoint> stored, ForeignNames names, const std::string& source)
      : ListedCheckpoint(our_shapes(*stored, names, source), source),
        stored_(std::move(stored)),
        names_(std::move(names)) {}

  int outermost_axis(const std::string& name) const override {
    const ForeignName& theirs = names_.at(name);
    return theirs.is_transposed || theirs.is_vector ? 1 : stored_->outermost_axis(theirs.name);
  }

 private:
  std::vector<float> values(const std::string& name, const Ranges& part) const override {
    const ForeignName& theirs = names_.at(name);
    if (theirs.is_vector)
      return part[0].size() == 0 ? std::vector<float>() : stored_->read(theirs.name, {part[1]});
    if (!theirs.is_transposed) return stored_->read(theirs.name, part);
    const Ranges turned = {part[1], part[0]};
    return transposed({shape_of(turned), stored_->read(theirs.name, turned)}).values;
  }

  std::unique_ptr<Checkpoint> stored_;
  ForeignNames names_;
};

}  // namespace

const std::string& ForeignModel::hyper_parameter(const std::string& name,
                                                 const std::string& otherwise) const {
  const auto found = config.find(name);
  return found == config.end() || found->second == "null" ? otherwise : found->second;
}

std::unique_ptr<Checkpoint> renamed(std::unique_ptr<Checkpoint> stored, ForeignNames names,
                                    std::string source) {
  return std::make_unique<RenamedCheckpoint>(std::move(stored), std::move(names), std::move(source));
}

}  // namespace shard
