#include "emu/products/library.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>

namespace shard::emu {

namespace {

/// A variable of the environment, until the end of this object.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* set = std::getenv(name)) before_ = set;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// BLIS's number for kernels. Its list of names, which differs between versions, ends with "generic".
std::string number_in_blis(void* handle, const std::string& kernels) {
  auto* name = reinterpret_cast<const char* (*)(int)>(::dlsym(handle, "bli_arch_string"));
  for (int number = 0; name != nullptr; ++number)
    if (const std::string here = name(number); here == kernels || here == "generic")
      return std::to_string(number);
  return kernels;
}

std::shared_ptr<void> opened(const std::string& file, bool apart) {
  // One core for each device: if each device's library used all cores, the devices would compete for them.
  const Variable threads("OPENBLAS_NUM_THREADS", "1");
  void* handle = apart ? ::dlmopen(LM_ID_NEWLM, file.c_str(), RTLD_NOW | RTLD_LOCAL)
                       : ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  return {handle, [](void* h) {
            if (h != nullptr) ::dlclose(h);
          }};
}

}  // namespace

const char* variable_of(ByModel library) {
  return library == ByModel::openblas ? "OPENBLAS_CORETYPE" : "BLIS_ARCH_TYPE";
}

std::optional<ProductLibrary> ProductLibrary::load(const std::string& file, const std::string& kernels,
                                                   bool apart) {
  std::optional<Variable> of_openblas, of_blis;
  if (!kernels.empty()) of_openblas.emplace(variable_of(ByModel::openblas), kernels);
  std::shared_ptr<void> handle = opened(file, apart);
  if (handle == nullptr) return {};
  if (!kernels.empty()) of_blis.emplace(variable_of(ByModel::blis), number_in_blis(handle.get(), kernels));
  ProductLibrary library(std::move(handle), file);
  return library.has_products() ? std::optional(std::move(library)) : std::nullopt;
}

std::optional<ProductLibrary> ProductLibrary::present() {
  if (::dlsym(RTLD_DEFAULT, "cblas_sgemm") == nullptr) return {};
  return ProductLibrary(nullptr, "a library that the program was started with");
}

ProductLibrary::ProductLibrary(std::shared_ptr<void> handle, const std::string& file)
    : handle_(std::move(handle)), name_("CBLAS in " + file) {
  cblas_ = reinterpret_cast<Cblas*>(find("cblas_sgemm"));
  if (cblas_ == nullptr) onednn_ = reinterpret_cast<OneDnn*>(find("dnnl_sgemm"));
  name_openblas();
  name_blis();
  name_mkl();
  name_onednn();
}

void* ProductLibrary::find(const char* function) const {
  return ::dlsym(handle_ ? handle_.get() : RTLD_DEFAULT, function);
}

void ProductLibrary::name_openblas() {
  if (auto* use_threads = reinterpret_cast<void (*)(int)>(find("openblas_set_num_threads"))) use_threads(1);
  auto* config = reinterpret_cast<const char* (*)()>(find("openblas_get_config"));
  auto* core = reinterpret_cast<const char* (*)()>(find("openblas_get_corename"));
  if (core == nullptr) return;
  const std::string words = config == nullptr ? "OpenBLAS" : config();
  name_ = words.substr(0, words.find(' ', words.find(' ') + 1));  // "OpenBLAS 0.3.21 NO_LAPACKE ..."
  kernels_ = core();
  by_model_ = ByModel::openblas;
}

void ProductLibrary::name_blis() {
  auto* version = reinterpret_cast<const char* (*)()>(find("bli_info_get_version_str"));
  auto* id = reinterpret_cast<int (*)()>(find("bli_arch_query_id"));
  auto* name = reinterpret_cast<const char* (*)(int)>(find("bli_arch_string"));
  if (version == nullptr || id == nullptr || name == nullptr) return;
  if (auto* use_threads = reinterpret_cast<void (*)(std::int64_t)>(find("bli_thread_set_num_threads")))
    use_threads(1);
  name_ = std::string("BLIS ") + version();
  kernels_ = name(id());
  by_model_ = ByModel::blis;
}

void ProductLibrary::name_mkl() {
  if (auto* use_threads = reinterpret_cast<void (*)(int)>(find("MKL_Set_Num_Threads"))) use_threads(1);
  auto* branch = reinterpret_cast<int (*)()>(find("mkl_cbwr_get_auto_branch"));
  if (branch == nullptr) return;
  name_ = "MKL";
  constexpr int avx2 = 10, avx512 = 12;  // MKL_CBWR_AVX2 and what follows, in mkl_types.h
  kernels_ = name_of(branch() >= avx512 ? Instructions::avx512
                     : branch() >= avx2 ? Instructions::avx2
                                        : Instructions::baseline);
}

void ProductLibrary::name_onednn() {
  if (onednn_ == nullptr) return;
  if (auto* use_threads = reinterpret_cast<void (*)(int)>(find("omp_set_num_threads"))) use_threads(1);
  struct Version {
    int major, minor, patch;
  };
  auto* version = reinterpret_cast<const Version* (*)()>(find("dnnl_version"));
  auto* isa = reinterpret_cast<int (*)()>(find("dnnl_get_effective_cpu_isa"));
  name_ = "oneDNN";
  if (version != nullptr)
    name_ += ' ' + std::to_string(version()->major) + '.' + std::to_string(version()->minor) + '.' +
             std::to_string(version()->patch);
  if (isa == nullptr) return;
  constexpr int avx = 0x3, avx2 = 0x7, avx512 = 0x27;  // dnnl_cpu_isa_t: a bit for each set of instructions
  auto has = [bits = isa()](int all) { return (bits & all) == all; };
  kernels_ = name_of(has(avx512) ? Instructions::avx512
                     : has(avx2) ? Instructions::avx2
                     : has(avx)  ? Instructions::avx
                                 : Instructions::baseline);
}

std::string ProductLibrary::text() const {
  return kernels_.empty() ? name_ : name_ + ", " + kernels_ + " kernels";
}

void ProductLibrary::multiply(const MatrixProduct& p) const {
  if (cblas_ != nullptr) {
    constexpr int by_rows = 101, as_it_lies = 111,
                  transposed = 112;  // CblasRowMajor, CblasNoTrans, CblasTrans
    cblas_(by_rows, p.a_is_transposed ? transposed : as_it_lies, p.b_is_transposed ? transposed : as_it_lies,
           p.m, p.n, p.k, 1.0F, p.a, p.row_length_a, p.b, p.row_length_b, p.keep, p.c, p.n);
  } else {
    onednn_(p.a_is_transposed ? 'T' : 'N', p.b_is_transposed ? 'T' : 'N', p.m, p.n, p.k, 1.0F, p.a,
            p.row_length_a, p.b, p.row_length_b, p.keep, p.c, p.n);
  }
}

}  // namespace shard::emu
