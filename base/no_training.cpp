#include "base/no_training.h"

#include <fmt/format.h>

namespace hetu {

std::string needs_training(std::string_view what) {
  return fmt::format(
      "{} needs training, but this installation has only the tools for schedules; build Hetu from "
      "its sources with ./run install (see INSTALL.md)",
      what);
}

}  // namespace hetu
