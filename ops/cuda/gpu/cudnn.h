// cuDNN's graph API, found when the process runs: it is as large as everything else of CUDA
// together, and only convolutions want it. Read by gpu/cudnn_conv.cpp alone.
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

/// nullptr where there is no libcudnn.so.9, or one without all of them.
const CudnnLibrary* cudnn();

/// Throws Internal with what failed and the library's words.
void check(cudnnStatus_t status, const char* what);

/// A descriptor of the graph API, destroyed with it.
class CudnnDescriptor {
 public:
  /// Throws Internal.
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : it_(other.it_) { other.it_ = nullptr; }
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  cudnnBackendDescriptor_t get() const { return it_; }
  /// Throws Internal naming the attribute's number.
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other);
  void set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values);
  /// Whether the library can do what was described.
  bool try_finalize();
  /// Throws Internal where it can't.
  void finalize(const char* what);

 private:
  cudnnBackendDescriptor_t it_ = nullptr;
};

}  // namespace hetu::cuda
