#pragma once

///     ./chapters/run 10 -n 2 generate --params DIR --ids 5,17,2 --memory 0=1GB,1=1GB,cpu=4GB
///
/// A network that runs by a map of modules and places. It is a list of parts, such as the blocks of a
/// decoder. Each part runs on the device that the map names, and what it returns is sent to the device of
/// the next one. A part whose place is the host's memory or the disk runs on the main device, the first one
/// of the map: its weights are brought in when it runs, and let go of after that. Devices run one after the
/// other, as the parts of a network on one device do, so the results are the same. For inference alone.

#include <memory>

#include "10_checkpoints/dispatch/device_map.hpp"
#include "10_checkpoints/dispatch/offloaded_weights.hpp"
#include "engine/layers/tokens/language_model.hpp"

namespace shard::checkpoints {

/// `Weights`: all parameters, each an Owned, which may be empty.
template <class Weights>
class DispatchedModel : public LanguageModel {
 public:
  /// ## What this device owns
  /// The parts of its own place. The main device reads those on the host, too. The checkpoint must outlive
  /// the engine, which reads parts on the disk from it.
  void load_checkpoint(const Checkpoint& c) override {
    offloaded_ = std::make_unique<dispatch::OffloadedWeights>(c);
    std::map<std::vector<std::string>, std::size_t> on_host;  // a table of two parts is there once
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      Part& part = parts_[p];
      if (part.runs_on != device_id()) continue;
      std::vector<std::string> names;
      visit_parameters(p, weights_, [&](const std::string& name, Owned& parameter) {
        names.push_back(name);
        const bool is_new = parameter.is_empty() && dispatch::is_device(part.place);
        if (is_new) parameter = Owned::mine(group(), c.whole(name));
      });
      if (dispatch::is_device(part.place)) continue;
      const bool is_known = !part.is_on_disk() && on_host.contains(names);
      part.offloaded_as = is_known ? on_host.at(names) : offloaded_->add(names, part.is_on_disk());
      if (!part.is_on_disk()) on_host.emplace(names, part.offloaded_as);
    }
  }

  /// ## What it does not do
  Gradients backward(Tensor) override {
    refuse(Code::argument, "backward", "an engine that trains", "one for inference alone");
  }
  Trainables trainable() override { return {}; }
  Placement input_layout() const override { return Placement::replicated(); }

 protected:
  using Visit = std::function<void(const std::string& name, Owned& parameter)>;

  /// `places`: of the parts, in the order in which they run.
  DispatchedModel(Communicator& group, const std::vector<std::string>& places) : LanguageModel(group) {
    int main_device = 0;
    if (const auto device = std::ranges::find_if(places, dispatch::is_device); device != places.end())
      main_device = std::stoi(*device);
    for (const std::string& place : places)
      parts_.push_back({place, dispatch::is_device(place) ? std::stoi(place) : main_device});
  }

  /// Calls visit for each parameter of a part.
  virtual void visit_parameters(std::size_t part, Weights& w, const Visit& visit) const = 0;
  /// What a part makes of what the part before has returned. Called on the device that runs it.
  virtual Owned compute(std::size_t part, const Weights& w, Owned x) = 0;
  /// Whether a part reads tokens, and nothing of the part before.
  virtual bool reads_tokens(std::size_t part) const { return part == 0; }
  /// Called on all devices before a part runs: gives that device what it reads beside x.
  virtual void provide(std::size_t, int /*device*/) {}

  /// ## Forward
  /// Only the device whose turn it is has x. Returns what the last part does, (rows, 1).
  Owned run_parts(std::size_t first, Index rows) {
    begin_to_read(first);
    Owned x;
    int holder = 0;
    for (std::size_t p = first; p < parts_.size(); ++p) {
      const int next = parts_[p].runs_on;
      const bool is_sent = !reads_tokens(p) && holder != next;
      if (is_sent && holder == device_id()) send(next, std::move(x).local());
      if (is_sent && next == device_id()) x = Owned::mine(group(), receive(holder));
      holder = next;
      provide(p, holder);
      if (holder == device_id()) x = run(p, std::move(x));
    }
    Tensor result = holder == device_id() ? std::move(x).local() : Tensor();
    return Owned(group(), std::move(result), {rows, 1}, holder);
  }
  std::size_t num_parts() const { return parts_.size(); }

 private:
  struct Part {
    std::string place;
    int runs_on;
    std::size_t offloaded_as = 0;

    bool is_on_disk() const { return place == dispatch::disk_place; }
  };

  /// Begins with the first part on the disk that will run here.
  void begin_to_read(std::size_t first) {
    for (std::size_t p = first; p < parts_.size(); ++p)
      if (parts_[p].runs_on == device_id() && parts_[p].is_on_disk())
        return offloaded_->begin_pass(parts_[p].offloaded_as);
  }
  /// Runs a part on this device. Weights that are elsewhere come in, and are gone when it returns.
  Owned run(std::size_t p, Owned x) {
    if (dispatch::is_device(parts_[p].place)) return compute(p, weights_, std::move(x));
    Weights brought;
    std::map<std::string, Owned*> by_name;
    visit_parameters(p, brought, [&](const std::string& name, Owned& w) { by_name[name] = &w; });
    offloaded_->bring_in(parts_[p].offloaded_as, [&](const std::string& name, const HostTensor& values) {
      Tensor weight = Tensor::from_host(values.shape, values.values);
      weight.charge_to(Purpose::parameters);
      *by_name.at(name) = Owned::mine(group(), std::move(weight));
    });
    return compute(p, brought, std::move(x));
  }

  std::vector<Part> parts_;  // in the order of execution
  Weights weights_;
  std::unique_ptr<dispatch::OffloadedWeights> offloaded_;
};

}  // namespace shard::checkpoints
