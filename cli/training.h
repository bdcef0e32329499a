// A check that differs in a build with training (training.cpp) and without it (no_training.cpp).
#pragma once
#include <string>

namespace hetu::cli {

/// Checks that this build can run a command that is written in Python. Throws Unsupported if the
/// module needs training and the build has none.
void require_module(const std::string& module);

}  // namespace hetu::cli
