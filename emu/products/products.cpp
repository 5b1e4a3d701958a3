/// Which library makes products, and with which kernels: see this room's README.md.

#include "emu/products/products.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "engine/device/error.hpp"

namespace shard::emu {

namespace {

struct Choice {
  ProductLibrary library;
  std::string remark;
  std::optional<ProductLibrary> of_small = {};  ///< of products that are small, where it is another library
};

/// A product of at most so many multiplications is small.
constexpr std::int64_t most_of_small = std::int64_t{1} << 21;

const char* given(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

/// The variable by which the user has chosen kernels of a BLAS, if there is one.
const char* users_variable() {
  for (const ByModel library : {ByModel::openblas, ByModel::blis})
    if (given(variable_of(library)) != nullptr) return variable_of(library);
  return nullptr;
}

/// oneDNN, if it may be chosen and is exact; else a remark.
std::optional<ProductLibrary> load_onednn(std::string& remark) {
  if (users_variable() != nullptr || this_processor().instructions < Instructions::avx2) return {};
  for (const char* file : {"libdnnl.so.3", "libdnnl.so.2"})
    if (std::optional<ProductLibrary> found = ProductLibrary::load(file)) {
      if (is_exact(*found)) return found;
      remark = fmt::format("{} is wrong on this processor", found->text());
      return {};
    }
  remark = "oneDNN is not installed";
  return {};
}

/// The BLAS, or the file that the user has named.
Choice load_blas(const std::string& file, std::string remark) {
  const char* variable = users_variable();
  const std::optional<ProductLibrary> library =
      variable != nullptr ? ProductLibrary::load(file) : with_best_kernels(file, remark);
  if (library) return {*library, variable != nullptr ? fmt::format("as {} says", variable) : remark};
  const char* reason = ::dlerror();
  throw Error(Code::missing, "products: expected a library with cblas_sgemm or dnnl_sgemm, given {}: {}",
              file, reason == nullptr ? "it has none" : reason);
}

Choice choose() {
  if (std::optional<ProductLibrary> present = ProductLibrary::present()) return {*present, ""};
  if (const char* file = given("SHARDBOOK_PRODUCTS")) return load_blas(file, "as SHARDBOOK_PRODUCTS says");
  std::string remark;
  const std::optional<ProductLibrary> onednn = load_onednn(remark);
  if (!onednn) return load_blas(SHARDBOOK_CBLAS, remark);
  const Processor here = this_processor();
  if (!here.is_amd || here.instructions != Instructions::avx2) return {*onednn, ""};
  const std::optional<ProductLibrary> blas = with_best_kernels(SHARDBOOK_CBLAS, remark);
  if (!blas || blas->by_model() != ByModel::openblas || !is_exact(*blas)) return {*onednn, ""};
  return {*blas, remark, onednn};
}

const Choice& choice() {
  static const auto* chosen =
      new Choice(choose());  // never unloaded: a static tensor may be destroyed after it
  return *chosen;
}

void add_to(std::string& remark, const std::string& more) {
  remark += (remark.empty() ? "" : "; ") + more;
}

}  // namespace

std::vector<std::string> known_libraries() {
  return {SHARDBOOK_CBLAS, "libdnnl.so.3", "libdnnl.so.2", "libopenblas.so.0", "libblis.so.4"};
}

std::optional<ProductLibrary> with_best_kernels(const std::string& file, std::string& remark, bool apart) {
  std::optional<ProductLibrary> own = ProductLibrary::load(file, {}, apart);
  if (!own || !own->by_model()) return own;
  const std::string by_itself = fmt::format("{} by itself chooses {}", own->name(), own->kernels());
  const std::vector<std::string> better = better_kernels(*own->by_model(), this_processor(), own->kernels());
  if (better.empty()) return own;
  own.reset();  // a library reads its variable when it is loaded
  for (const std::string& kernels : better) {
    const std::optional<ProductLibrary> other = ProductLibrary::load(file, kernels, apart);
    if (!other || other->kernels() != kernels) continue;  // this version has none of these
    if (is_exact(*other)) {
      add_to(remark, by_itself);
      return other;
    }
    add_to(remark, fmt::format("its {} kernels are wrong on this processor", kernels));
  }
  return ProductLibrary::load(file, {}, apart);
}

void multiply(const MatrixProduct& p) {
  const Choice& c = choice();
  const bool is_small = std::int64_t{p.m} * p.k * p.n <= most_of_small;
  (c.of_small && is_small ? *c.of_small : c.library).multiply(p);
}

std::vector<ProductLibrary> product_libraries() {
  std::vector<ProductLibrary> all = {choice().library};
  if (choice().of_small) all.push_back(*choice().of_small);
  return all;
}

std::string about_products() {
  const Choice& c = choice();
  std::string text = c.library.text();
  if (c.of_small) text += fmt::format(", small ones by {}", c.of_small->text());
  const Instructions instructions = this_processor().instructions;
  if (instructions != Instructions::baseline)
    text += fmt::format(", on a processor with {}", name_of(instructions));
  return c.remark.empty() ? text : fmt::format("{} ({})", text, c.remark);
}

}  // namespace shard::emu
