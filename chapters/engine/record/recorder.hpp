#pragma once

/// The recorder of a device: an observer of its operations and memory, and a communicator around another one.

#include <optional>
#include <string>
#include <unordered_map>

#include "engine/device/books/ledger.hpp"
#include "engine/device/books/observer.hpp"
#include "engine/device/communicator/wrapped_communicator.hpp"
#include "engine/record/log.hpp"

namespace shard {

/// Writes down what this device does, from its making on.
class Recorder : public Observer {
 public:
  /// Keeps the first `steps` sections that are steps. Those of the last step, and after it, are there until the next
  /// step begins, in case that the run fails. `path`: see LogBook
  Recorder(Index steps, const std::string& path);

  /// The sections that are kept, or all that are there.
  std::string log(bool with_later) const { return book_.all(with_later); }
  void flush() { book_.flush(); }
  /// Lines about results that differ from their reference.
  const std::string& differences() const { return differences_; }

  /// \name Calls, for a RecordedCommunicator
  /// @{
  /// Writes down a call, and gives it a number.
  void called(Request& request, const Communicator& group);
  void waits_for(Index event);
  void arrived(Index event, const Tensor& result);
  void joined(const Communicator& group);
  /// @}

  void begins(const Operation& operation) override;
  void computed(const Operation& operation) override;
  void made(const void* memory, Purpose purpose, Index bytes) override;
  void freed(const void* memory) override;
  void moved(const void* memory, Purpose to) override;
  void sent(Index event, int to, const Traffic& messages) override;
  void laid(const Tensor& local, const Lying& lying) override;
  void named(const Tensor& tensor, const std::string& name) override;
  void group_named(Index group, const std::string& name) override;
  void section(const std::string& name, bool is_step) override;
  void differs(const std::string& line) override { differences_ += line + '\n'; }

 private:
  /// A tensor that this device has: how the next section begins with it.
  struct Held {
    Index id = 0;
    Purpose purpose = Purpose::activations;
    Index bytes = 0;
    SourceLine line = {};
    std::string name = {}, how_laid = {};
    std::optional<Shape> shape = {};
    bool has_value = false;  ///< the section has its value already
  };
  /// An entry, a line of the log, with its time.
  struct Line : Written {
    Line(Recorder& recorder, std::string_view is);
  };

  Held* find(const void* memory);
  Index id_of(const void* memory) const;
  void write_tensor(Text& text, const Tensor& t, bool is_transposed = false) const;
  /// Where the device is.
  void add_place(Written& entry);
  void add_line(Written& entry, SourceLine line);
  void add_held(Written& entry);
  template <std::size_t N, class T>
  void note_group(Index group, const char (&field)[N], const T& value);
  /// Writes down the elements of a small tensor, and a sketch of a large one in a step that is kept: always, or unless the
  /// section has them.
  /// @{
  void note_value(const Tensor& t);
  void note_first_value(const Tensor& t);
  /// @}

  bool is_kept() const { return is_step_ && steps_ > 0; }

  LogBook book_;
  Index steps_;           // that are still to be kept
  bool is_step_ = false;  // this section
  Index next_id_ = 0, next_event_ = 0, calls_ = 0;
  std::unordered_map<const void*, Held> held_;
  std::string differences_;
  std::string groups_;  // entries about groups, with which each section begins
  std::unordered_map<const char*, std::string> files_;  // as lines begin, "chapters/a.hpp:"
  Observation observation_;
};

/// A communicator whose calls are recorded, also those of groups split off it.
class RecordedCommunicator : public WrappedCommunicator {
 public:
  RecordedCommunicator(Communicator& inner, Recorder& recorder);
  RecordedCommunicator(std::unique_ptr<Communicator> part, Recorder& recorder);

  Future<CallResult> call(Request&& request) override;

 protected:
  std::unique_ptr<Communicator> wrap(std::unique_ptr<Communicator> part) override {
    return std::make_unique<RecordedCommunicator>(std::move(part), recorder_);
  }

 private:
  Recorder& recorder_;
};

}  // namespace shard
