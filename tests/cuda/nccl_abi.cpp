// Compares the NCCL declarations of executor/direct/nccl_library.h with NCCL's own header. It is
// compiled, but not run, and only if CUDA is built and nccl.h is found.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "executor/direct/nccl_library.h"

namespace hetu::comm {
namespace {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0));

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(alignof(NcclUniqueId) == alignof(ncclUniqueId));
static_assert(std::is_trivially_copyable_v<NcclUniqueId>, "it is passed by value");
static_assert(sizeof(NcclComm) == sizeof(ncclComm_t));

// The beginning of NCCL's configuration. NCCL reads the number of bytes in `size`.
static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
static_assert(NcclConfig().magic == kTheirs.magic);
static_assert(NcclConfig().version == NCCL_VERSION(2, 14, 0), "the first that has one");

static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress);
static_assert(kNcclBytes == ncclInt8);
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int));

// Maps each type of one of NCCL's functions to Hetu's type that may replace it.
template <class T>
struct Ours {
  using Type = T;
};
template <>
struct Ours<ncclResult_t> {
  using Type = int;
};
template <>
struct Ours<ncclResult_t*> {
  using Type = int*;
};
template <>
struct Ours<ncclDataType_t> {
  using Type = int;
};
template <>
struct Ours<ncclComm_t> {
  using Type = NcclComm;
};
template <>
struct Ours<ncclComm_t*> {
  using Type = NcclComm*;
};
template <>
struct Ours<ncclUniqueId> {
  using Type = NcclUniqueId;
};
template <>
struct Ours<ncclUniqueId*> {
  using Type = NcclUniqueId*;
};
template <>
struct Ours<ncclConfig_t*> {
  using Type = NcclConfig*;
};
template <>
struct Ours<cudaStream_t> {
  using Type = void*;
};
template <class R, class... A>
struct Ours<R (*)(A...)> {
  using Type = typename Ours<R>::Type (*)(typename Ours<A>::Type...);
};
template <class Declared, class Theirs>
constexpr bool kSame = std::is_same_v<Declared, typename Ours<Theirs>::Type>;

using L = NcclLibrary;
static_assert(kSame<decltype(L::get_unique_id), decltype(&ncclGetUniqueId)>);
static_assert(kSame<decltype(L::comm_init_rank_config), decltype(&ncclCommInitRankConfig)>);
static_assert(kSame<decltype(L::comm_get_async_error), decltype(&ncclCommGetAsyncError)>);
static_assert(kSame<decltype(L::comm_finalize), decltype(&ncclCommFinalize)>);
static_assert(kSame<decltype(L::comm_abort), decltype(&ncclCommAbort)>);
static_assert(kSame<decltype(L::group_start), decltype(&ncclGroupStart)>);
static_assert(kSame<decltype(L::group_end), decltype(&ncclGroupEnd)>);
static_assert(kSame<decltype(L::send), decltype(&ncclSend)>);
static_assert(kSame<decltype(L::recv), decltype(&ncclRecv)>);
static_assert(kSame<decltype(L::error_string), decltype(&ncclGetErrorString)>);

}  // namespace
}  // namespace hetu::comm
