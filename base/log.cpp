#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace hetu {
namespace {

spdlog::level::level_enum level_of(Level level) {
  static const spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                      spdlog::level::warn, spdlog::level::err};
  return kLevels[static_cast<int>(level)];
}

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_logger_mt("hetu");
    made->set_pattern("%H:%M:%S.%e %l: %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(Level level) { logger().set_level(level_of(level)); }

bool log_enabled(Level level) { return logger().should_log(level_of(level)); }

void log_line(Level level, std::string_view text) { logger().log(level_of(level), "{}", text); }

}  // namespace hetu
