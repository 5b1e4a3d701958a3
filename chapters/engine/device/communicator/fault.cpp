#include "engine/device/communicator/fault.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <thread>

namespace shard {

namespace {

constexpr std::array<std::string_view, 7> kinds = {"kill",  "exit", "throw",  "stop",
                                                   "delay", "skip", "corrupt"};

/// Gives the other devices time to begin waiting for this one.
void let_others_wait() {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

/// Parses "NAME=NUMBER," at the beginning of the text, and removes it there.
template <class Number>
bool take_number(std::string_view& text, std::string_view name, Number& number) {
  if (!text.starts_with(name)) return false;
  const char* begin = text.data() + name.size();
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != ',') return false;
  text.remove_prefix(static_cast<std::size_t>(end + 1 - text.data()));
  return true;
}

Tensor corrupted(const Tensor& t) {
  std::vector<float> values = t.to_host();
  if (!values.empty()) values[0] += 1.0F;
  return Tensor::from_host(t.shape(), values);
}

}  // namespace

CallResult result_of_skipped(Request&& request) {
  if (request.function == Request::post_receive) return {Tensor(*request.arrives)};
  return {request.is_shared ? request.tensor.clone() : std::move(request.tensor)};
}

std::optional<Fault> fault_from(const std::string& text) {
  Fault fault;
  std::string_view rest = text;
  if (!take_number(rest, "device=", fault.device) || !take_number(rest, "call=", fault.call)) return {};
  if (fault.device < 0 || fault.call < 1 || !rest.starts_with("kind=")) return {};
  const auto kind = std::find(kinds.begin(), kinds.end(), rest.substr(5));
  if (kind == kinds.end()) return {};
  fault.kind = static_cast<Fault::Kind>(kind - kinds.begin());
  return fault;
}

std::string text_of(const Fault& fault) {
  return fmt::format("device={},call={},kind={}", fault.device, fault.call,
                     kinds[static_cast<std::size_t>(fault.kind)]);
}

void FaultyCommunicator::strike() const {
  const Fault::Kind kind = fault_.kind;
  if (kind == Fault::Kind::kill || kind == Fault::Kind::exit) let_others_wait();
  if (kind == Fault::Kind::kill) std::raise(SIGKILL);
  if (kind == Fault::Kind::exit) _exit(0);
  if (kind == Fault::Kind::raise)
    throw Error(Code::internal, "device {}: the planted fault of --fault", this_device());
  if (kind == Fault::Kind::stop) std::raise(SIGSTOP);
  if (kind == Fault::Kind::delay) std::this_thread::sleep_for(std::chrono::seconds(1));
}

Future<CallResult> FaultyCommunicator::call(Request&& request) {
  if (request.is_counted() && ++*calls_ == fault_.call && this_device() == fault_.device) {
    strike();
    if (fault_.kind == Fault::Kind::skip) return done(result_of_skipped(std::move(request)));
    if (fault_.kind == Fault::Kind::corrupt) {
      if (request.function == Request::receive || request.function == Request::post_receive)
        return inner().call(std::move(request)).then([](CallResult arrived) {
          return CallResult{corrupted(arrived.tensor)};
        });
      request.tensor = corrupted(request.tensor);
    }
  }
  return WrappedCommunicator::call(std::move(request));
}

}  // namespace shard
