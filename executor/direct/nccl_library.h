// NCCL's entry points, of the library that is looked for when a process runs: no build needs it or
// its header. Read by nccl.cpp.
#pragma once
#include <array>
#include <cstddef>
#include <string>

namespace hetu::comm {

// Their layout is NCCL's since 2.14, whose configuration later versions take by its version.
// Source: NCCL User Guide, "NCCL API".
struct NcclUniqueId {
  std::array<char, 128> internal{};
};
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;  ///< calls return at once; ncclCommGetAsyncError says how they went
};
using NcclComm = struct NcclCommOpaque*;
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
inline constexpr int kNcclBytes = 0;  // ncclInt8

/// Each returns an ncclResult_t.
struct NcclLibrary {
  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*comm_init_rank_config)(NcclComm*, int ranks, NcclUniqueId, int rank, NcclConfig*) = nullptr;
  int (*comm_get_async_error)(NcclComm, int*) = nullptr;
  int (*comm_finalize)(NcclComm) = nullptr;
  int (*comm_abort)(NcclComm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, std::size_t, int type, int peer, NcclComm, void* stream) = nullptr;
  int (*recv)(void*, std::size_t, int type, int peer, NcclComm, void* stream) = nullptr;
  const char* (*error_string)(int) = nullptr;
};

/// Loads it; stays as long as the process. Throws Unsupported, with the loader's words, where it is
/// missing, and with the function that it lacks where it is older than 2.14.
NcclLibrary load_nccl(const std::string& file = "libnccl.so.2");

}  // namespace hetu::comm
