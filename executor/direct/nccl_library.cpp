// Loads NCCL with dlopen.
#include "executor/direct/nccl_library.h"

#include <dlfcn.h>

#include <type_traits>

#include "base/error.h"

namespace hetu::comm {

NcclLibrary load_nccl(const std::string& file) {
  void* const module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) fail(Code::Unsupported, "NCCL: {}; install NCCL 2.14 or later", dlerror());
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(module, name));
    if (function == nullptr)
      fail(Code::Unsupported, "NCCL: {} has no {}; install NCCL 2.14 or later", file, name);
  };
  NcclLibrary l;
  find(l.get_unique_id, "ncclGetUniqueId");
  find(l.comm_init_rank_config, "ncclCommInitRankConfig");
  find(l.comm_get_async_error, "ncclCommGetAsyncError");
  find(l.comm_finalize, "ncclCommFinalize");
  find(l.comm_abort, "ncclCommAbort");
  find(l.group_start, "ncclGroupStart");
  find(l.group_end, "ncclGroupEnd");
  find(l.send, "ncclSend");
  find(l.recv, "ncclRecv");
  find(l.error_string, "ncclGetErrorString");
  return l;
}

}  // namespace hetu::comm
