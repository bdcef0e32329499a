#include "cli/plan_function.h"

#include "base/error.h"
#include "cli/outside.h"

namespace hetu::cli {
namespace {

constexpr double kTimeout_s = 3600;
// Exit statuses of python/hetu/plan_function.py.
constexpr int kNoFunction = 2, kRefused = 3;

std::string plan_from_python(const std::string& name, int stages, int micro_batches) {
  const Ended made =
      run_outside({sibling_program(own_program(), "python3"), "-m", "hetu.plan_function", name,
                   std::to_string(stages), std::to_string(micro_batches)},
                  kTimeout_s, Errors::Pass);
  switch (made.status) {
    case 0:
      return made.output;
    case kRefused:
      fail(Code::InvalidArgument, "{}: {}", name, made.output);
    case kNoFunction:
      fail(Code::Config, "{}", made.output);
    case 127:
      fail(Code::Config, "{}: python3 cannot be started, and this plan is a Python function", name);
    case 124:
      fail(Code::Config, "{}: the function has not returned within {:g} s", name, kTimeout_s);
    default:
      fail(Code::Config,
           "{}: Python ended with status {}; see the lines above, which are Python's own", name,
           made.status);
  }
}

}  // namespace

PlanFunction python_plan_function() { return plan_from_python; }

}  // namespace hetu::cli
