/// The products of a page, in place of emu/products: it has one, and chooses nothing.

#include "emu/products/products.hpp"

#include "emu/web/plain_product.hpp"

namespace shard::emu {

ProductLibrary::ProductLibrary(std::shared_ptr<void> handle, const std::string& name)
    : handle_(std::move(handle)), name_(name) {}

std::optional<ProductLibrary> ProductLibrary::present() {
  return ProductLibrary(nullptr, "plain loops in WebAssembly");
}

void ProductLibrary::multiply(const MatrixProduct& product) const {
  multiply_plainly(product);
}

void multiply(const MatrixProduct& product) {
  multiply_plainly(product);
}

std::vector<ProductLibrary> product_libraries() {
  return {*ProductLibrary::present()};
}

std::string about_products() {
  return product_libraries().front().name();
}

}  // namespace shard::emu
