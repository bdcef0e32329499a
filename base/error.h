// The exception type of Hetu, and the functions that throw it. All of Hetu reports errors through
// these functions.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace hetu {

/// Category of an error. It determines the Python exception, and the exit status of command-line
/// tools.
enum class Code {
  InvalidArgument,  ///< a value from the caller is wrong
  Config,           ///< a configuration file or key is wrong
  Plan,             ///< a schedule fails verification (exit status 1 of `hetu verify`)
  Unsupported,      ///< valid, but not supported by this build or device
  Io,               ///< a file cannot be read, written or trusted, or memory cannot be allocated
  Comm,             ///< a peer or a link failed
  Timeout,          ///< a deadline passed
  Internal          ///< a bug in Hetu
};

/// Returns the name of a code, for example "InvalidArgument".
const char* code_name(Code code);

/// Returns the exit status of a command that ends with this code: Plan 1, InvalidArgument and
/// Config 2, Unsupported 3, Io 4, Comm 5, Timeout 6, Internal 70.
int exit_status(Code code);

/// The only exception that Hetu throws. what() states what was asked, what was found, and what to
/// do.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

/// Throws Error(code) with the formatted message.
template <class... Args>
[[noreturn]] void fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws Error(InvalidArgument) unless `ok`. The message is formatted only on failure.
template <class... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) fail(Code::InvalidArgument, format, std::forward<Args>(args)...);
}

/// Throws Error(Internal) with file and line. Called by HETU_ASSERT.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace hetu

/// For bugs in Hetu only. Check input with require().
#define HETU_ASSERT(expression) \
  ((expression) ? static_cast<void>(0) : ::hetu::assertion_failed(#expression, __FILE__, __LINE__))
