#include <dlfcn.h>

#include "tests/stand_ins/fake_nccl.h"

namespace hetu::comm {

FakeNccl load_fake_nccl() {
  void* const module = dlopen(HETU_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  FakeNccl found;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(module, name));
  };
  find(found.live, "fake_nccl_live");
  find(found.made, "fake_nccl_made");
  find(found.moved, "fake_nccl_moved");
  find(found.fail, "fake_nccl_fail");
  return found;
}

}  // namespace hetu::comm
