// Calls of cuDNN's graph API for its tests. The environment chooses the library: the emulated one,
// or NVIDIA's by its path in CUDNN_UNDER_TEST. NVIDIA's needs no GPU until a handle is created.
#pragma once
#include <cudnn_graph.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace hetu::emulator {

inline const char* of_nvidia() { return std::getenv("CUDNN_UNDER_TEST"); }

/// Returns a function of the library, or null if the library or the function is missing.
template <class F>
F* cudnn_function(const char* name) {
  static void* const library =
      dlopen(of_nvidia() != nullptr ? of_nvidia() : "libcudnn.so.9", RTLD_NOW);
  return library == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(library, name));
}

using Numbers = std::vector<std::int64_t>;
using Name = cudnnBackendAttributeName_t;

/// A descriptor with the status of its last operation, or of the first one that failed.
class Described {
 public:
  explicit Described(cudnnBackendDescriptorType_t type) {
    static auto* const create =
        cudnn_function<decltype(cudnnBackendCreateDescriptor)>("cudnnBackendCreateDescriptor");
    status = create(type, &it);
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
  ~Described() {
    static auto* const destroy =
        cudnn_function<decltype(cudnnBackendDestroyDescriptor)>("cudnnBackendDestroyDescriptor");
    if (it != nullptr) static_cast<void>(destroy(it));
  }

  Described& set(Name name, cudnnBackendAttributeType_t type, std::int64_t count,
                 const void* from) {
    static auto* const call =
        cudnn_function<decltype(cudnnBackendSetAttribute)>("cudnnBackendSetAttribute");
    return note(call(it, name, type, count, from));
  }
  Described& numbers(Name name, const Numbers& values) {
    return set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  template <class T>
  Described& one(Name name, cudnnBackendAttributeType_t type, T value) {
    return set(name, type, 1, &value);
  }
  Described& other(Name name, const Described& of) {
    return one(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, of.it);
  }
  Described& finalize() {
    static auto* const call =
        cudnn_function<decltype(cudnnBackendFinalize)>("cudnnBackendFinalize");
    return note(call(it));
  }
  /// Reads an attribute and returns the number of its elements.
  std::int64_t get(Name name, cudnnBackendAttributeType_t type, std::int64_t most, void* to) {
    static auto* const call =
        cudnn_function<decltype(cudnnBackendGetAttribute)>("cudnnBackendGetAttribute");
    std::int64_t count = -1;
    note(call(it, name, type, most, &count, to));
    return count;
  }

  cudnnBackendDescriptor_t it = nullptr;
  cudnnStatus_t status;

 private:
  Described& note(cudnnStatus_t now) {
    if (status == CUDNN_STATUS_SUCCESS) status = now;
    return *this;
  }
};

/// The attributes of a tensor to set, except those in `left_out`.
struct TensorToTell {
  std::int64_t name;
  Numbers size, step;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::int64_t alignment = 16;
  std::vector<Name> left_out;

  bool tells(Name name_of) const {
    for (const Name out : left_out)
      if (out == name_of) return false;
    return true;
  }
  cudnnStatus_t to(Described& d) const {
    if (tells(CUDNN_ATTR_TENSOR_UNIQUE_ID)) d.numbers(CUDNN_ATTR_TENSOR_UNIQUE_ID, {name});
    if (tells(CUDNN_ATTR_TENSOR_DATA_TYPE))
      d.one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    if (tells(CUDNN_ATTR_TENSOR_DIMENSIONS)) d.numbers(CUDNN_ATTR_TENSOR_DIMENSIONS, size);
    if (tells(CUDNN_ATTR_TENSOR_STRIDES)) d.numbers(CUDNN_ATTR_TENSOR_STRIDES, step);
    if (tells(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT))
      d.numbers(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {alignment});
    return d.finalize().status;
  }
};

struct WindowsToTell {
  Numbers before{1, 1}, after{1, 1}, stride{1, 1}, dilation{1, 1}, rank{2};
  std::vector<Name> left_out;

  cudnnStatus_t to(Described& d) const {
    d.one(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    d.one(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    const std::vector<std::pair<Name, const Numbers*>> all = {
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &rank},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &before},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &after},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &stride},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, &dilation}};
    for (const auto& [name, values] : all)
      if (left_out.empty() || left_out[0] != name) d.numbers(name, *values);
    return d.finalize().status;
  }
};

/// A forward convolution of plain tensors, [2, 4, 6, 6] with filters [8, 4, 3, 3].
struct ForwardToTell {
  TensorToTell x{1, {2, 4, 6, 6}, {144, 36, 6, 1}};
  TensorToTell w{2, {8, 4, 3, 3}, {36, 9, 3, 1}};
  TensorToTell y{3, {2, 8, 6, 6}, {288, 36, 6, 1}};
  WindowsToTell windows;
  std::vector<Name> left_out;

  cudnnStatus_t to(Described& d) const {
    Described tensors[] = {Described(CUDNN_BACKEND_TENSOR_DESCRIPTOR),
                           Described(CUDNN_BACKEND_TENSOR_DESCRIPTOR),
                           Described(CUDNN_BACKEND_TENSOR_DESCRIPTOR)};
    Described convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    x.to(tensors[0]);
    w.to(tensors[1]);
    y.to(tensors[2]);
    windows.to(convolution);
    const std::vector<std::pair<Name, const Described*>> all = {
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, &tensors[0]},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &tensors[1]},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, &tensors[2]},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &convolution}};
    for (const auto& [name, value] : all)
      if (left_out.empty() || left_out[0] != name) d.other(name, *value);
    d.one(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1.0F);
    d.one(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 0.0F);
    return d.finalize().status;
  }
};

}  // namespace hetu::emulator
