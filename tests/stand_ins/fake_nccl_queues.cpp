// Streams of the library that stands in for NCCL on devices without CUDA. A stream is a Queue.
#include "executor/device/device.h"
#include "tests/stand_ins/fake_nccl_launch.h"

bool fake::put(void* stream, const std::shared_ptr<Launch>& launch) {
  static_cast<hetu::Queue*>(stream)->run([launch](hetu::AddressMap at) {
    launch->begin([at](void* data, std::size_t, const char*) { return at(data); });
    launch->finish();
  });
  return true;
}
