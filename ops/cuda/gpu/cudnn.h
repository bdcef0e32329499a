// cuDNN's graph API, loaded at run time: the library is as large as all others of CUDA together,
// and only convolutions need it. Used only by gpu/cudnn_conv.cpp.
#pragma once
#include <cudnn_graph.h>

#include <cstdint>
#include <vector>

namespace hetu::cuda {

/// The functions that are called. Names are the library's without "cudnn".
struct CudnnLibrary {
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;
};

/// Returns the library, or nullptr if there is no libcudnn.so.9 or it lacks one of the functions.
const CudnnLibrary* cudnn();

/// Throws Internal with the failed operation and the library's error text.
void check(cudnnStatus_t status, const char* what);

/// An owned descriptor of the graph API.
class CudnnDescriptor {
 public:
  /// Throws Internal.
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : it_(other.it_) { other.it_ = nullptr; }
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  cudnnBackendDescriptor_t get() const { return it_; }
  /// Throws Internal, naming the attribute's number.
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other);
  void set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values);
  /// Returns true if the library supports the described operation.
  bool try_finalize();
  /// Throws Internal if the library doesn't support it.
  void finalize(const char* what);

 private:
  cudnnBackendDescriptor_t it_ = nullptr;
};

}  // namespace hetu::cuda
