// The functions of cuDNN 9's graph API that Hetu calls, in a separate library, because Hetu loads
// cuDNN by its name. Descriptors are checked when they are set. The memory of a plan is checked at
// the call and again when the plan runs, which is as late as possible.
// Source: NVIDIA, cuDNN 9 API reference, cudnn_graph library.
#include <cudnn_graph.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/emulator/card_functions.h"
#include "tests/emulator/cudnn_descriptors.h"
#include "tests/emulator/cudnn_engines.h"
#include "tests/emulator/interpreter.h"

namespace hetu::emulator {
namespace {

const CardFunctions* card = nullptr;  // of the process; without it there is no handle

std::mutex mutex;  // guards `handles`
auto& handles() {
  static auto* const all = new std::map<cudnnHandle_t, cudaStream_t>;
  return *all;  // until the process ends
}
cudaStream_t& stream_of(cudnnHandle_t handle) {
  const auto found = handles().find(handle);
  if (found == handles().end()) throw Refusal(CUDNN_STATUS_BAD_PARAM, "no such handle");
  return found->second;
}

/// Returns the status of f, and prints its refusals.
cudnnStatus_t told(const std::function<void()>& f) {
  try {
    f();
  } catch (const Refusal& refusal) {
    if (*refusal.what() != '\0') std::fprintf(stderr, "emulated cuDNN: %s\n", refusal.what());
    return refusal.status;
  }
  return CUDNN_STATUS_SUCCESS;
}

/// A convolution with its memory.
struct Run {
  Chosen chosen;
  void *x, *w, *y;
  void* workspace;

  void check() const {
    const Convolution& c = chosen.convolution;
    check_operand(x, c.x.bytes(), "convolution, x");
    check_operand(w, c.w.bytes(), "convolution, w");
    check_operand(y, c.y.bytes(), "convolution, y");
    if (chosen.workspace > 0) check_operand(workspace, chosen.workspace, "convolution, workspace");
    const auto apart = [&](void* a, std::int64_t a_bytes, void* b, std::int64_t b_bytes) {
      const auto first = reinterpret_cast<std::uintptr_t>(a);
      const auto second = reinterpret_cast<std::uintptr_t>(b);
      if (first < second + static_cast<std::uintptr_t>(b_bytes) &&
          second < first + static_cast<std::uintptr_t>(a_bytes))
        throw Problem(fmt::format("convolution: {} and {} overlap", a, b));
    };
    apart(x, c.x.bytes(), w, c.w.bytes());
    apart(x, c.x.bytes(), y, c.y.bytes());
    apart(w, c.w.bytes(), y, c.y.bytes());
    if (chosen.workspace == 0) return;
    apart(workspace, chosen.workspace, x, c.x.bytes());
    apart(workspace, chosen.workspace, w, c.w.bytes());
    apart(workspace, chosen.workspace, y, c.y.bytes());
  }

  void run() const {
    check();
    const Convolution& c = chosen.convolution;
    std::vector<float> sums(static_cast<std::size_t>(c.made().count()));
    c.sum(x, w, y, chosen.sums, sums.data());
    void* const made = &c.made() == &c.x ? x : &c.made() == &c.w ? w : y;
    c.round(sums.data(), made);
    if (chosen.workspace > 0)  // its former content is lost
      std::fill_n(static_cast<unsigned char*>(workspace), chosen.workspace, 0xff);
  }

 private:
  static void check_operand(const void* from, std::int64_t bytes, const char* what) {
    card->check_access(from, static_cast<std::size_t>(bytes), what);
  }
};

Descriptor& finalized(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type) {
  if (descriptor == nullptr) throw Refusal(CUDNN_STATUS_BAD_PARAM, "a plan or its pack is null");
  Descriptor& d = known_descriptor(descriptor);
  if (d.kind->type != type)
    throw Refusal(CUDNN_STATUS_BAD_PARAM,
                  fmt::format("{} in place of {}", d.kind->words, kind_of(type).words));
  if (!d.finalized)
    throw Refusal(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                  fmt::format("{}: it is not finalized", d.kind->words));
  return d;
}

void* pointer_of(const Descriptor& pack, const StridedTensor& tensor) {
  const auto names = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto at = std::find(names.begin(), names.end(), tensor.name) - names.begin();
  if (at == static_cast<std::ptrdiff_t>(names.size()))
    throw Refusal(CUDNN_STATUS_BAD_PARAM,
                  fmt::format("variant pack: no pointer of tensor {}", tensor.name));
  void* const there =
      pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)[static_cast<std::size_t>(at)];
  if (there == nullptr)
    throw Refusal(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                  fmt::format("variant pack: tensor {} is null", tensor.name));
  if (reinterpret_cast<std::uintptr_t>(there) % static_cast<std::uintptr_t>(tensor.alignment) != 0)
    throw Refusal(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                  fmt::format("variant pack: tensor {} at {} is not aligned by {}", tensor.name,
                              there, tensor.alignment));
  return there;
}

void execute(cudnnHandle_t handle, const Descriptor& plan, const Descriptor& pack) {
  cudaStream_t stream = nullptr;
  {
    const std::lock_guard lock(mutex);
    stream = stream_of(handle);
  }
  const Chosen chosen(plan);
  const Convolution& c = chosen.convolution;
  void* const workspace = pack.has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
                              ? pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE)
                              : nullptr;
  const Run run{chosen, pointer_of(pack, c.x), pointer_of(pack, c.w), pointer_of(pack, c.y),
                workspace};
  if (chosen.workspace > 0 && workspace == nullptr)
    throw Refusal(CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                  fmt::format("plan: it wants {} bytes of workspace", chosen.workspace));
  const bool taken = card->guarded([&] {
    run.check();
    card->give(stream, [run] { run.run(); });
  });
  if (!taken) throw Refusal(CUDNN_STATUS_EXECUTION_FAILED);
}

/// Refuses while a stream captures. Operations that load kernels may wait for the GPU, which a
/// capture forbids.
void want_no_capture(const char* what) {
  if (card != nullptr && card->may_not_wait())
    throw Refusal(CUDNN_STATUS_EXECUTION_FAILED_CUDART,
                  fmt::format("{}: made while a stream captures", what));
}

}  // namespace

bool is_handle(cudnnHandle_t handle) {
  const std::lock_guard lock(mutex);
  return handles().count(handle) != 0;
}

}  // namespace hetu::emulator

using namespace hetu::emulator;  // NOLINT: what follows has the library's names

extern "C" {

void emulated_card_joins(const CardFunctions* functions) { card = functions; }

cudnnStatus_t cudnnCreate(cudnnHandle_t* to) {
  return told([&] {
    if (card == nullptr) throw Refusal(CUDNN_STATUS_NOT_INITIALIZED, "there is no card");
    want_no_capture("handle");
    const std::lock_guard lock(mutex);
    static std::uintptr_t names = 0x1000;
    names += 16;
    *to = reinterpret_cast<cudnnHandle_t>(names);  // NOLINT(performance-no-int-to-ptr): a name
    handles()[*to] = nullptr;
  });
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return told([&] {
    const std::lock_guard lock(mutex);
    stream_of(handle);
    handles().erase(handle);
  });
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return told([&] {
    if (card == nullptr || !card->has_stream(stream))
      throw Refusal(CUDNN_STATUS_BAD_PARAM, "no such stream");
    const std::lock_guard lock(mutex);
    stream_of(handle) = stream;
  });
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_EXECUTION_FAILED:
      return "CUDNN_STATUS_EXECUTION_FAILED";
    case CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER:
      return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
    default:
      return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM"
             : CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED
                 ? "CUDNN_STATUS_NOT_SUPPORTED"
                 : "an error of the emulated cuDNN";
  }
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* to) {
  return told([&] { *to = make_descriptor(type); });
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return told([&] { destroy_descriptor(descriptor); });
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* from) {
  return told([&] { set_attribute(known_descriptor(descriptor), name, type, count, from); });
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t most,
                                       std::int64_t* count, void* to) {
  return told([&] { get_attribute(known_descriptor(descriptor), name, type, most, count, to); });
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return told([&] {
    Descriptor& d = known_descriptor(descriptor);
    if (d.kind->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) want_no_capture("plan");
    finalize(d);
  });
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  return told([&] {
    execute(handle, finalized(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
            finalized(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  });
}

}  // extern "C"
