// A compiled package as a torch class: its `run` leaves Python's lock free, as AOTInductor's own binding does not.
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/custom_class.h>

namespace dg {
namespace {

class Package : public torch::CustomClassHolder {
 public:
  explicit Package(const std::string& path) : loader_(path) {}

  std::vector<std::string> constants() { return loader_.get_constant_fqns(); }

  // The tensors stay the caller's: they must live as long as the package.
  void load_constants(const c10::Dict<std::string, at::Tensor>& constants) {
    std::unordered_map<std::string, at::Tensor> named;
    for (const auto& entry : constants) named.emplace(entry.key(), entry.value());
    loader_.load_constants(named, /*use_inactive=*/false, /*check_full_update=*/true, /*user_managed=*/true);
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) { return loader_.run(inputs); }

 private:
  torch::inductor::AOTIModelPackageLoader loader_;
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(dg, library) {
  library.class_<Package>("Package")
      .def(torch::init<const std::string&>())
      .def("constants", &Package::constants)
      .def("load_constants", &Package::load_constants)
      .def("run", &Package::run);
}

}  // namespace dg
