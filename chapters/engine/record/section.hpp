#pragma once

/// The events of one section of one device, made of the entries of its log.

#include <map>
#include <optional>
#include <string>

#include "engine/record/tables.hpp"

namespace shard {

/// Entries come one after the other. An event gets what is known of it only later: the layout of its result, the
/// messages that it sent, the block that it belongs to.
class Section {
 public:
  Section(int device, const Entry& begins, Tables& tables, Layouts& layouts);

  void add(const Entry& entry);
  /// The section with its events. Times are relative to `origin`.
  Entry finish(Index origin);

 private:
  struct Known {
    Index id;                ///< in this section, from 0
    std::string name = {};   ///< of a parameter, or of the gradient of one
    std::string block = {};  ///< of what it was made of by a call
    Entry shape = {};
    std::optional<Index> layout = {};
    std::optional<std::size_t> writer = {};  ///< the event that wrote it last
  };
  struct Event {
    Entry what;
    Entry context = Entry::object();
    std::vector<Index> from = {};  ///< tensors, as the log has them
    std::optional<Index> to = {};
    Index t = 0;
    std::optional<Index> took = {};
    Entry sends = Entry::array();
    Index number = 0;                    ///< of a call
    std::optional<std::size_t> of = {};  ///< of a wait: the event of its call
    std::string block = {};
  };

  Known& known(Index tensor);
  void hold(const Entry& held);
  Event& begin(const Entry& entry, const char* is);
  Entry as_operand(const Entry& reference);
  void write(std::size_t event, const Entry& reference, bool keeps_layout);
  void lay(Index number, const Entry& how);
  void add_call(const Entry& entry);
  void add_operation(const Entry& entry);
  void add_wait(const Entry& entry);
  void add_arrival(const Entry& entry);
  void add_messages(const Entry& entry);
  void add_memory(const Entry& entry);
  void add_group(const Entry& entry);
  Entry group_of(Index id) const;
  std::string axis_of(Index group) const;
  void find_blocks();
  Entry row_of(const Event& event, Index origin);

  int device_;
  Tables& tables_;
  Layouts& layouts_;
  std::string name_;
  Entry held_ = Entry::array(), values_ = Entry::array(), sketches_ = Entry::array();
  std::map<Index, Known> known_;   // by the log's number
  std::map<Index, Entry> groups_;  // by id
  std::vector<Event> events_;
  std::map<Index, std::size_t> calls_;  // the event of each call, by the log's number
  std::optional<std::size_t> computing_, waiting_;
};

}  // namespace shard
