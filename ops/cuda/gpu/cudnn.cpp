#include "ops/cuda/gpu/cudnn.h"

#include <dlfcn.h>

#include "base/error.h"

namespace hetu::cuda {
namespace {

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
}

CudnnLibrary open() {
  CudnnLibrary l;
  void* const library =
      dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);  // stays loaded until the process ends
  if (library == nullptr) return l;
  find(library, "cudnnCreate", l.create);
  find(library, "cudnnDestroy", l.destroy);
  find(library, "cudnnSetStream", l.set_stream);
  find(library, "cudnnGetErrorString", l.error_string);
  find(library, "cudnnBackendCreateDescriptor", l.create_descriptor);
  find(library, "cudnnBackendDestroyDescriptor", l.destroy_descriptor);
  find(library, "cudnnBackendSetAttribute", l.set_attribute);
  find(library, "cudnnBackendGetAttribute", l.get_attribute);
  find(library, "cudnnBackendFinalize", l.finalize);
  find(library, "cudnnBackendExecute", l.execute);
  return l;
}

}  // namespace

const CudnnLibrary* cudnn() {
  static const CudnnLibrary l = open();
  const bool whole = l.create && l.destroy && l.set_stream && l.error_string &&
                     l.create_descriptor && l.destroy_descriptor && l.set_attribute &&
                     l.get_attribute && l.finalize && l.execute;
  return whole ? &l : nullptr;
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail(Code::Internal, "cuDNN: {} failed: {}", what, cudnn()->error_string(status));
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check(cudnn()->create_descriptor(type, &it_), "creating a descriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (it_ != nullptr)
    static_cast<void>(cudnn()->destroy_descriptor(it_));  // a destructor cannot report an error
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          std::int64_t count, const void* values) {
  const cudnnStatus_t status = cudnn()->set_attribute(it_, name, type, count, values);
  if (status != CUDNN_STATUS_SUCCESS)
    fail(Code::Internal, "cuDNN: setting attribute {} failed: {}", static_cast<int>(name),
         cudnn()->error_string(status));
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
  const cudnnBackendDescriptor_t it = other.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &it);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name,
                          const std::vector<std::int64_t>& values) {
  set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
}

bool CudnnDescriptor::try_finalize() { return cudnn()->finalize(it_) == CUDNN_STATUS_SUCCESS; }

void CudnnDescriptor::finalize(const char* what) { check(cudnn()->finalize(it_), what); }

}  // namespace hetu::cuda
