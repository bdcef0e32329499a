// Plans that the user's own Python functions return: `hetu simulate MODULE:FUNCTION …`.
#pragma once
#include "pipeline/options/plan_options.h"

namespace hetu::cli {

/// Returns a PlanFunction that runs `python3 -m hetu.plan_function`, with the Python in this
/// program's folder if there is one, and otherwise the one on PATH. The function's output goes to
/// standard error.
///
/// Throws InvalidArgument if the function refuses the sizes with a ValueError. Throws Config if
/// there is no such function, if it fails, or if Python can't be started.
PlanFunction python_plan_function();

}  // namespace hetu::cli
