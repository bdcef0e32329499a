#include "ops/cuda/work.h"

#include <mutex>
#include <set>
#include <string>

#include "base/error.h"

namespace hetu::cuda {
namespace {

thread_local const KernelContext* here = nullptr;

}  // namespace

const KernelContext& kernel_context() {
  HETU_ASSERT(here != nullptr);
  return *here;
}

const KernelContext* set_kernel_context(const KernelContext* now) {
  const KernelContext* before = here;
  here = now;
  return before;
}

const char* kept_name(std::string_view name) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> names;
  const std::lock_guard lock(mutex);
  return names.emplace(name).first->c_str();
}

}  // namespace hetu::cuda
