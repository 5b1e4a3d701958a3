#include "engine/schedules/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace shard {

using Kind = Action::Kind;

std::string to_string(const Message& message) {
  return fmt::format("{} of micro-batch {} for stage {}",
                     message.flow == Flow::activation ? "activation" : "gradient", message.micro_batch,
                     message.stage);
}

std::string to_string(const Action& action) {
  const char* names[] = {"forward",   "backward",     "backward for the input", "backward for the weights",
                         "post send", "post receive", "wait for a send",        "wait for a receive"};
  if (action.is_work())
    return fmt::format("{} of micro-batch {}, stage {}", names[static_cast<int>(action.kind)],
                       action.micro_batch, action.stage);
  return fmt::format("{}: {}", names[static_cast<int>(action.kind)],
                     to_string(Message{action.flow, action.micro_batch, action.stage}));
}

namespace {

class Messages {
 public:
  Messages(Schedule& schedule, const Work& work) : schedule_(schedule), work_(work) {
    for (const std::vector<Action>& of_device : work)
      for (const Action& action : of_device)
        if (std::optional<Message> m = made_by(action))
          in_order_[{schedule_.sender(*m), schedule_.receiver(*m)}].push_back(*m);
  }

  std::vector<Action> of_device(int device) {
    const std::vector<Action>& work = work_[static_cast<std::size_t>(device)];
    std::vector<Action> actions;
    std::map<int, std::size_t> posted;              // from each device
    std::map<Flow, std::optional<Message>> unsent;  // posted, and not waited for
    if (!work.empty()) post_receives(device, work[0], posted, actions);
    for (std::size_t i = 0; i < work.size(); ++i) {
      if (i + 1 < work.size()) post_receives(device, work[i + 1], posted, actions);
      if (std::optional<Message> m = needed_by(work[i]))
        actions.push_back(Action::on(Kind::wait_received, *m));
      actions.push_back(work[i]);
      std::optional<Message> made = made_by(work[i]);
      if (!made) continue;
      if (unsent[made->flow]) actions.push_back(Action::on(Kind::wait_sent, *unsent[made->flow]));
      actions.push_back(Action::on(Kind::post_send, *made));
      unsent[made->flow] = made;
    }
    for (const auto& [flow, message] : unsent)
      if (message) actions.push_back(Action::on(Kind::wait_sent, *message));
    return actions;
  }

 private:
  /// The message, if both stages exist and lie on different devices.
  std::optional<Message> between_devices(const Message& m) const {
    bool is_there = m.stage >= 0 && m.stage < schedule_.stages && m.from_stage() >= 0 &&
                    m.from_stage() < schedule_.stages;
    if (!is_there || schedule_.sender(m) == schedule_.receiver(m)) return std::nullopt;
    return m;
  }
  std::optional<Message> made_by(const Action& a) const {
    if (a.kind == Kind::backward_weights) return std::nullopt;
    if (a.kind == Kind::forward) return between_devices({Flow::activation, a.micro_batch, a.stage + 1});
    return between_devices({Flow::gradient, a.micro_batch, a.stage - 1});
  }
  std::optional<Message> needed_by(const Action& a) const {
    if (a.kind == Kind::backward_weights) return std::nullopt;
    return between_devices(
        {a.kind == Kind::forward ? Flow::activation : Flow::gradient, a.micro_batch, a.stage});
  }

  /// Posts the receive that `next` needs, after the receives of what the same device sends before it.
  void post_receives(int device, const Action& next, std::map<int, std::size_t>& posted,
                     std::vector<Action>& actions) const {
    std::optional<Message> needed = needed_by(next);
    if (!needed) return;
    const int sender = schedule_.sender(*needed);
    const std::vector<Message>& sent = in_order_.at({sender, device});
    const auto last = static_cast<std::size_t>(std::ranges::find(sent, *needed) - sent.begin());
    for (std::size_t& k = posted[sender]; k <= last; ++k)
      actions.push_back(Action::on(Kind::post_receive, sent[k]));
  }

  Schedule& schedule_;
  const Work& work_;
  std::map<std::pair<int, int>, std::vector<Message>> in_order_;  // by sender and receiver
};

}  // namespace

Schedule with_messages(int stages, Index micro_batches, const Work& work) {
  Schedule schedule{static_cast<int>(work.size()), stages, micro_batches, {}};
  Messages messages(schedule, work);
  for (int d = 0; d < schedule.devices; ++d) schedule.actions.push_back(messages.of_device(d));
  return schedule;
}

}  // namespace shard
