#include "causes.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "engine/device/split.hpp"

namespace shard::layer_cuts {

namespace {

using Row = std::span<const float>;

std::size_t columns_of(const HostTensor& t) {
  return static_cast<std::size_t>(t.shape[1]);
}
Row row_of(const HostTensor& t, std::size_t i) {
  return Row(t.values).subspan(i * columns_of(t), columns_of(t));
}
float on_grid(float value) {
  return std::rint(value / grid().unit) * grid().unit;
}

/// \name LayerNorm with its features cut
/// @{
constexpr Cause of_norm[] = {Cause::norm_own_sums,  Cause::norm_own_count,  Cause::norm_own_means,
                             Cause::norm_exchanged, Cause::norm_no_weights, Cause::norm_no_mean,
                             Cause::norm_no_dot,    Cause::norm_no_root,    Cause::norm_rounded};

/// The means of a row, and of its product with another one.
struct Means {
  float first = 0, second = 0;
};

/// The means that each column's device has.
std::vector<Means> means_of(Row a, Row b, int devices, Cause wrong) {
  const bool own_sums = wrong == Cause::norm_own_sums || wrong == Cause::norm_own_means;
  const bool own_count = wrong == Cause::norm_own_count || wrong == Cause::norm_own_means;
  const Range all = {0, std::ssize(a)};
  std::vector<Means> means;
  for (int device = 0; device < devices; ++device) {
    const Range mine = part(all.end, devices, device), summed = own_sums ? mine : all;
    Means of_mine;
    for (auto c = static_cast<std::size_t>(summed.begin); c < static_cast<std::size_t>(summed.end); ++c)
      of_mine.first += a[c], of_mine.second += a[c] * b[c];
    const float share = 1 / static_cast<float>(own_count ? mine.size() : all.size());
    means.insert(means.end(), static_cast<std::size_t>(mine.size()),
                 {of_mine.first * share, of_mine.second * share});
  }
  return means;
}

Results norm_version(const LayerCase& of, int devices, Cause wrong) {
  const HostTensor &x = of.input, &dy = of.output_grad, &w = of.weights.at("weights"),
                   &b = of.weights.at("bias");
  const HostTensor zeros = {w.shape, std::vector<float>(w.values.size())};
  Results results = {{"output", x}, {"input_grad", x}, {"weights", zeros}, {"bias", zeros}};
  auto rounded = [&](float value) { return wrong == Cause::norm_rounded ? value : on_grid(value); };
  for (std::size_t i = 0; i < static_cast<std::size_t>(x.shape[0]); ++i) {
    const Row xs = row_of(x, i), dys = row_of(dy, i);
    const std::vector<Means> forward = means_of(xs, xs, devices, wrong);
    std::vector<float> root(xs.size()), x_hat(xs.size()), d(xs.size());
    for (std::size_t c = 0; c < xs.size(); ++c) {
      const auto [mean, square] = forward[c];
      root[c] = on_grid(1 / std::sqrt(square - mean * mean + norm_epsilon));
      x_hat[c] = on_grid((xs[c] - on_grid(mean)) * root[c]);
      d[c] = wrong == Cause::norm_no_weights ? dys[c] : dys[c] * w.values[c];
      results["output"].values[i * xs.size() + c] = x_hat[c] * w.values[c] + b.values[c];
      results["weights"].values[c] += dys[c] * x_hat[c];
      results["bias"].values[c] += dys[c];
    }
    const std::vector<Means> backward = means_of(d, x_hat, devices, wrong);
    for (std::size_t c = 0; c < xs.size(); ++c) {
      auto [mean, dot] = backward[c];
      if (wrong == Cause::norm_exchanged) std::swap(mean, dot);
      float dx = d[c];
      if (wrong != Cause::norm_no_dot) dx -= rounded(x_hat[c] * rounded(dot));
      if (wrong != Cause::norm_no_mean) dx -= rounded(mean);
      results["input_grad"].values[i * xs.size() + c] =
          wrong == Cause::norm_no_root ? dx : on_grid(dx * root[c]);
    }
  }
  return results;
}
/// @}

/// \name Cross entropy with its vocabulary cut
/// @{
constexpr Cause of_loss[] = {Cause::loss_own_largest, Cause::loss_own_sums,        Cause::loss_own_labels,
                             Cause::loss_no_offset,   Cause::loss_no_first_column, Cause::loss_no_labels,
                             Cause::loss_not_divided};

/// A row of logits as a device has it.
struct Logits {
  float largest = -HUGE_VALF, sum = 0, of_label = 0;
};

/// Whether a device takes a column of its slice for that of the label.
bool is_label(Index column, Index label, Range mine, Cause wrong) {
  if (wrong == Cause::loss_no_labels || (wrong == Cause::loss_no_first_column && column == mine.begin))
    return false;
  return label == (wrong == Cause::loss_no_offset ? column - mine.begin : column);
}

/// What each device has of a row, after the reductions that this version makes.
std::vector<Logits> reduced(Row z, Index label, int devices, Cause wrong) {
  std::vector<Logits> all(static_cast<std::size_t>(devices));
  auto reduce = [&](float Logits::*number, Cause forgets, auto&& join) {
    float whole = all[0].*number;
    for (std::size_t d = 1; d < all.size(); ++d) whole = join(whole, all[d].*number);
    for (Logits& mine : all) mine.*number = wrong == forgets ? mine.*number : whole;
  };
  auto each = [&](auto&& take) {
    for (int d = 0; d < devices; ++d) {
      const Range mine = part(std::ssize(z), devices, d);
      for (Index c = mine.begin; c < mine.end; ++c)
        take(all[static_cast<std::size_t>(d)], z[static_cast<std::size_t>(c)],
             is_label(c, label, mine, wrong));
    }
  };
  each([](Logits& l, float value, bool) { l.largest = std::max(l.largest, value); });
  reduce(&Logits::largest, Cause::loss_own_largest, [](float a, float b) { return std::max(a, b); });
  each([](Logits& l, float value, bool is_its) {
    l.sum += std::exp2(value - l.largest);
    l.of_label += is_its ? value : 0;
  });
  reduce(&Logits::sum, Cause::loss_own_sums, std::plus());
  reduce(&Logits::of_label, Cause::loss_own_labels, std::plus());
  return all;
}

Results loss_version(const LayerCase& of, int devices, int me, Cause wrong) {
  const HostTensor& z = of.input;
  const float dloss = of.output_grad.values[0];
  Results results = {{"output", {{1}, {0}}}, {"input_grad", z}};
  for (std::size_t i = 0; i < static_cast<std::size_t>(z.shape[0]); ++i) {
    const auto label = static_cast<Index>(of.weights.at("labels").values[i]);
    const std::vector<Logits> all = reduced(row_of(z, i), label, devices, wrong);
    const auto& [largest, sum, of_label] = all[static_cast<std::size_t>(me)];
    results["output"].values[0] += on_grid(largest + std::log2(sum) - of_label);
    for (int d = 0; d < devices; ++d) {
      const Range mine = part(z.shape[1], devices, d);
      const Logits& its = all[static_cast<std::size_t>(d)];
      for (Index c = mine.begin; c < mine.end; ++c) {
        float& element = results["input_grad"].values[i * columns_of(z) + static_cast<std::size_t>(c)];
        const float p = std::exp2(element - its.largest) / (wrong == Cause::loss_not_divided ? 1 : its.sum);
        element = on_grid((p - (is_label(c, label, mine, wrong) ? 1 : 0)) * dloss);
      }
    }
  }
  return results;
}
/// @}

bool is_same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

/// Whether these are the device's parts of a version's results.
bool explains(const Results& version, const std::map<std::string, Placed>& results) {
  return std::ranges::all_of(results, [&](const auto& entry) {
    const auto& [name, given] = entry;
    const HostTensor& whole = version.at(name);
    if (given.global_shape() != whole.shape) return false;
    const Tensor mine = given.slice_of(Tensor::from_host(whole.shape, whole.values));
    return std::ranges::equal(given.local().to_host(), mine.to_host(), is_same);
  });
}

}  // namespace

Diagnosis likely_cause(const LayerCase& layer, const Claim& claim,
                       const std::map<std::string, Placed>& results) {
  if (claim.verdict == Verdict::differs || results.empty()) return Diagnosis();
  const Communicator& group = results.begin()->second.group();
  if (layer.name == "LayerNorm" && claim.axis == "features")
    for (const Cause cause : of_norm)
      if (explains(norm_version(layer, group.num_devices(), cause), results)) return Diagnosis(cause);
  if (layer.name == "cross entropy" && claim.axis == "vocabulary")
    for (const Cause cause : of_loss)
      if (explains(loss_version(layer, group.num_devices(), group.device_id(), cause), results))
        return Diagnosis(cause);
  return Diagnosis();
}

}  // namespace shard::layer_cuts
