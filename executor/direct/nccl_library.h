// NCCL's entry points, loaded at run time, so that no build needs the library or its header. Used
// by nccl.cpp.
#pragma once
#include <array>
#include <cstddef>
#include <string>

namespace hetu::comm {

// These types have the layout of NCCL 2.14. Later versions recognise its configuration by the
// version number. Source: NCCL User Guide, "NCCL API".
struct NcclUniqueId {
  std::array<char, 128> internal{};
};
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  /// Non-blocking: calls return at once, and ncclCommGetAsyncError reports their result.
  int blocking = 0;
};
using NcclComm = struct NcclCommOpaque*;
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;
inline constexpr int kNcclBytes = 0;  // ncclInt8

/// NCCL's functions; those that return int return an ncclResult_t.
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

/// Loads the library, which stays loaded for the life of the process. Throws Unsupported with the
/// loader's message if the library is missing, and with the name of the missing function if it is
/// older than 2.14.
NcclLibrary load_nccl(const std::string& file = "libnccl.so.2");

}  // namespace hetu::comm
