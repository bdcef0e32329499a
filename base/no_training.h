// The error of functions that a build without training (HETU_TRAINING=OFF) lacks. Only such builds
// have this header: the sources no_training.cpp of cli and python/src read it.
#pragma once
#include <string>
#include <string_view>

namespace hetu {

/// Returns the message that `what`, such as "this command", needs training. It names the remedy.
std::string needs_training(std::string_view what);

}  // namespace hetu
