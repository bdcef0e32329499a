// Logging for every library. HETU_LOG_LEVEL sets the level (config/env.h reads it at the start).
#pragma once
#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace hetu {

/// Severity of a message.
enum class Level { Debug, Info, Warning, Error };

/// Drops messages below this level. The default is Info.
void set_log_level(Level level);

/// Returns true if a message of this level would be written.
bool log_enabled(Level level);

/// Writes one line to standard error.
void log_line(Level level, std::string_view text);

/// Formats and writes one line to standard error.
template <class... Args>
void log(Level level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace hetu
