// Compiled packages as C functions, for a process without torch's Python. What can fail gives back
// null or a message, which is valid until the thread's next call; no exception crosses.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <algorithm>

namespace {

constexpr int kMostDims = 5;

// A whole (contiguous) tensor. With an `owner` the memory is ours until dg_release(owner), else it is
// the caller's, to be kept while it is used. plugins/package.py has the same struct.
struct Array {
  void* data;
  at::Tensor* owner;
  int64_t sizes[kMostDims];
  int32_t dims;
  int32_t type;  // c10::ScalarType
};

struct Package {
  explicit Package(const char* path) : loader(path) {
    for (const auto& name : loader.get_constant_fqns()) names += name + "\n";
  }
  torch::inductor::AOTIModelPackageLoader loader;
  std::string names;
};

at::Tensor tensor_of(const Array& array) {
  const at::IntArrayRef sizes(array.sizes, static_cast<size_t>(array.dims));
  return at::from_blob(array.data, sizes, static_cast<at::ScalarType>(array.type));
}

void hand_over(const at::Tensor& tensor, Array& array) {
  TORCH_CHECK(tensor.dim() <= kMostDims, "a tensor has ", tensor.dim(), " dimensions, at most ",
              kMostDims, " are known here");
  array.owner = new at::Tensor(tensor.contiguous());
  array.data = array.owner->data_ptr();
  std::copy_n(tensor.sizes().data(), tensor.dim(), array.sizes);
  array.dims = static_cast<int32_t>(tensor.dim());
  array.type = static_cast<int32_t>(tensor.scalar_type());
}

template <class Body> const char* guarded(const Body& body) {
  static thread_local std::string message;
  try {
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
    message = "unknown C++ exception";
  }
  return message.c_str();
}

}  // namespace

extern "C" {

const char* dg_set_threads(int32_t count) {
  return guarded([&] { at::set_num_threads(count); });
}

const char* dg_cpu_capability() {
  static const std::string name = at::get_cpu_capability();
  return name.c_str();
}

void dg_release(at::Tensor* owner) { delete owner; }

const char* dg_open(const char* path, Package** package) {
  return guarded([&] { *package = new Package(path); });
}

void dg_close(Package* package) { delete package; }

// Names of the weights that the package wants, each ended by a line break; the package's own text.
const char* dg_constants(const Package* package) { return package->names.c_str(); }

// All of them at once; they stay the caller's and must live as long as the package.
const char* dg_set_constants(Package* package, const char* const* names, const Array* arrays,
                             int64_t count) {
  return guarded([&] {
    std::unordered_map<std::string, at::Tensor> named;
    for (int64_t i = 0; i < count; ++i) named.emplace(names[i], tensor_of(arrays[i]));
    package->loader.load_constants(named, /*use_inactive=*/false, /*check_full_update=*/true,
                                   /*user_managed=*/true);
  });
}

// Fills outputs[0, *count), of which there is room for the *count that is given; each has an owner.
const char* dg_run(Package* package, const Array* inputs, int64_t input_count, Array* outputs,
                   int64_t* count) {
  return guarded([&] {
    std::vector<at::Tensor> tensors;
    std::transform(inputs, inputs + input_count, std::back_inserter(tensors), tensor_of);
    const std::vector<at::Tensor> found = package->loader.run(tensors);
    TORCH_CHECK(static_cast<int64_t>(found.size()) <= *count, "the package gives ", found.size(),
                " outputs, at most ", *count, " are known here");
    *count = static_cast<int64_t>(found.size());
    for (int64_t i = 0; i < *count; ++i) hand_over(found[i], outputs[i]);
  });
}

}  // extern "C"
