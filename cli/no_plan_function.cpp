// Plans of Python functions in a build that can't start programs, the one for browsers.
#include "base/error.h"
#include "cli/plan_function.h"

namespace hetu::cli {

PlanFunction python_plan_function() {
  return [](const std::string& name, int, int) -> std::string {
    fail(Code::Unsupported,
         "{}: Python functions can't be called here. Give the plan as CSV, or use the tool `hetu`",
         name);
  };
}

}  // namespace hetu::cli
