#pragma once

///     ./chapters/run 10 -n 2 generate --params DIR --ids 5,17,2 --memory 0=1GB,1=1GB,cpu=4GB
///
/// A decoder that runs by a map of modules and places. Each block runs on the device that the map names, and
/// what it returns is sent to the device of the next one. A block whose place is the host's memory or the disk
/// runs on the main device, the first one of the map: its weights are brought in when it runs, and let go of
/// after that. Devices run one after the other, as in a network on one device, so the results are the same.
/// Builds on: 08_decoder/layers_stage.hpp.

#include <memory>

#include "08_decoder/whole_rows.hpp"
#include "engine/dispatch/offloaded_weights.hpp"
#include "engine/dispatch/places.hpp"

namespace shard::checkpoints {

/// The place of each part of a decoder. A head that is the embedding's table has the embedding's place.
struct DecoderPlaces {
  std::string embedding;
  std::vector<std::string> blocks;
  std::string final_norm;
  std::string head;

  /// The device that runs what is on the host or on the disk: the first one that the map names, or 0.
  int main_device() const {
    for (const std::vector<std::string>& some : {{embedding}, blocks, {final_norm, head}})
      for (const std::string& place : some)
        if (dispatch::is_device(place)) return std::stoi(place);
    return 0;
  }
  int runs_on(const std::string& place) const {
    return dispatch::is_device(place) ? std::stoi(place) : main_device();
  }
};

/// For inference alone.
class DispatchedDecoder : public LanguageModel {
 public:
  DispatchedDecoder(Communicator& group, const DecoderModel& model, const DecoderPlaces& places)
      : LanguageModel(group), m_(model) {
    auto add = [&](const std::string& place) {
      parts_.push_back({place, places.runs_on(place)});
      return parts_.size() - 1;
    };
    add(places.embedding);
    for (const std::string& place : places.blocks) add(place);
    add(places.final_norm);
    add(places.head);
  }

  /// ## What this device owns
  /// The parts of its own place. Those on the host are read too, if this is the main device. The checkpoint
  /// must outlive the engine, which reads parts on the disk from it.
  void load_checkpoint(const Checkpoint& c) override {
    offloaded_ = std::make_unique<dispatch::OffloadedWeights>(c);
    w_.blocks.resize(static_cast<std::size_t>(m_.num_blocks));
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      Part& part = parts_[p];
      if (part.runs_on != device_id()) continue;
      std::vector<std::string> names;
      for_each_parameter_of(p, w_, [&](const std::string& name, Owned& parameter) {
        names.push_back(name);
        if (dispatch::is_device(part.place)) parameter = Owned::mine(group(), c.whole(name));
      });
      if (is_head(p) && m_.is_tied && part.place == dispatch::host_place)
        part.offloaded_as = parts_.front().offloaded_as;
      else if (!dispatch::is_device(part.place))
        part.offloaded_as = offloaded_->add(std::move(names), part.place == dispatch::disk_place);
    }
  }

  /// ## Forward
  /// Every device knows the tokens. Only the device whose turn it is has x, (T, D).
  Placed forward(Tensor input) override {
    const Tokens tokens = read(input, m_.vocabulary);
    forget_choices();
    offloaded_->begin_pass();
    Owned x;
    int holder = parts_.front().runs_on;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const int next = parts_[p].runs_on;
      if (holder != next && holder == device_id()) send(next, std::move(x).local());
      if (holder != next && next == device_id()) x = Owned::mine(group(), receive(holder));
      holder = next;
      if (holder == device_id()) x = run(p, std::move(x), tokens);
    }
    Tensor losses = holder == device_id() ? std::move(x).local() : Tensor();
    return Owned(group(), std::move(losses), {tokens.rows(), 1}, holder);  // (T, 1)
  }

  /// ## What it does not do
  Gradients backward(Tensor) override {
    refuse(Code::argument, "backward", "an engine that trains", "one for inference alone");
  }
  Trainables trainable() override { return {}; }
  Placement input_layout() const override { return Placement::replicated(); }

 private:
  using Blocks = decoders::Weights<decoders::WeightsFor<Owned>, Owned, Owned>;
  struct Part {
    std::string place;
    int runs_on;
    std::size_t offloaded_as = 0;
  };

  bool is_block(std::size_t p) const { return p > 0 && p <= static_cast<std::size_t>(m_.num_blocks); }
  bool is_head(std::size_t p) const { return p + 1 == parts_.size(); }

  /// The parameters of a part. A head that is the embedding's table has none of its own on the same device.
  template <class Visit>
  void for_each_parameter_of(std::size_t p, Blocks& w, const Visit& visit) const {
    if (p == 0) return visit(embedding_name(), w.embedding);
    if (is_block(p)) {
      const auto b = static_cast<Index>(p) - 1;
      return for_each_parameter(m_, b, w.blocks[p - 1], visit);
    }
    if (!is_head(p)) return visit(final_norm_name(), w.final_norm);
    if (!m_.is_tied) return visit(head_name(), w.own_head);
    const bool is_here = dispatch::is_device(parts_[p].place);
    if (!is_here) visit(embedding_name(), w.own_head);
  }

  /// Runs a part on this device. Weights that are elsewhere come in, and are gone when it returns.
  Owned run(std::size_t p, Owned x, const Tokens& tokens) {
    if (dispatch::is_device(parts_[p].place)) return compute(p, w_, std::move(x), tokens);
    Blocks brought;
    brought.blocks.resize(w_.blocks.size());
    std::map<std::string, Owned*> by_name;
    for_each_parameter_of(p, brought, [&](const std::string& name, Owned& w) { by_name[name] = &w; });
    offloaded_->bring_in(parts_[p].offloaded_as, [&](const std::string& name, const HostTensor& values) {
      Tensor weight = Tensor::from_host(values.shape, values.values);
      weight.charge_to(Purpose::parameters);
      *by_name.at(name) = Owned::mine(group(), std::move(weight));
    });
    return compute(p, brought, std::move(x), tokens);
  }

  Owned compute(std::size_t p, const Blocks& w, Owned x, const Tokens& tokens) {
    if (p == 0) return embedding(w.embedding, tokens);  // (T, D)
    if (is_block(p)) return block(static_cast<Index>(p) - 1, w.blocks[p - 1], std::move(x), tokens);
    if (!is_head(p)) {
      Normed unused;
      return rms_norm(x, w.final_norm, m_.epsilon, m_.how, unused);  // (T, D)
    }
    const Owned& head = w.own_head.is_empty() ? w.embedding : w.own_head;
    Owned z = scale(matmul(x, transposed(head)), m_.how.logit_scale);  // (T, V)
    show_logits(z.local(), tokens);
    TokenSoftmax unused;
    return cross_entropy(std::move(z), tokens, m_.how, unused);  // (T, 1)
  }
  Owned block(Index b, const decoders::WeightsFor<Owned>& w, Owned x, const Tokens& tokens) {
    decoders::KeptFor<Owned> k;
    accumulate(x, decoders::attend(m_, w, x, tokens, k, cache(), b));
    accumulate(x, decoders::think(m_, w, x, k));
    note_choice(b, k.mixture.choice, tokens);
    return x;
  }

  DecoderModel m_;
  std::vector<Part> parts_;  // in the order of execution
  Blocks w_;
  std::unique_ptr<dispatch::OffloadedWeights> offloaded_;
};

}  // namespace shard::checkpoints
