// Signals that ask a training to stop. The handler runs outside the interpreter, so it responds at
// once, even while Python waits. A second Ctrl-C gets the system's default action.
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "python/src/bindings.h"

namespace nb = nanobind;

namespace hetu {
namespace {

// The handling of one signal. The handler reads this struct, so it changes only while the handler
// is not installed.
struct Watch {
  struct sigaction before = {};
  std::array<char, 512> text = {};
  std::size_t size = 0;
  bool asks = false;
  bool stands = false;
};

constexpr int kSignalNumbers = 65;
std::array<Watch, kSignalNumbers> g_watches;
volatile std::sig_atomic_t g_asked = 0;

extern "C" void hetu_take_signal(int number) {
  const int error = errno;
  const Watch& watch = g_watches[static_cast<std::size_t>(number)];
  // A failed write is ignored, because a handler cannot do anything about it.
  const ssize_t written = watch.size > 0 ? write(STDERR_FILENO, watch.text.data(), watch.size) : 0;
  static_cast<void>(written);
  if (watch.asks)
    g_asked = 1;
  else
    watch.before.sa_handler(number);
  errno = error;
}

Watch& watch_of(int number) {
  require(number > 0 && number < kSignalNumbers, "there is no signal with the number {}", number);
  return g_watches[static_cast<std::size_t>(number)];
}

bool is_function(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler != SIG_DFL &&
         action.sa_handler != SIG_IGN;
}

bool watch_signal(int number, const std::string& text, bool asks, bool once) {
  Watch& watch = watch_of(number);
  if (watch.stands) return false;
  sigaction(number, nullptr, &watch.before);
  if (!asks && !is_function(watch.before)) return false;
  watch.size = std::min(text.size(), watch.text.size());
  std::copy_n(text.begin(), watch.size, watch.text.begin());
  watch.asks = asks;
  watch.stands = true;
  struct sigaction action = {};
  action.sa_handler = hetu_take_signal;
  action.sa_flags = SA_RESTART | (once ? static_cast<int>(SA_RESETHAND) : 0);
  sigaction(number, &action, nullptr);
  return true;
}

void forget_signal(int number) {
  Watch& watch = watch_of(number);
  if (!watch.stands) return;
  struct sigaction now = {};
  sigaction(number, nullptr, &now);
  // A handler that other code has installed in the meantime stays.
  if (now.sa_handler == hetu_take_signal || now.sa_handler == SIG_DFL)
    sigaction(number, &watch.before, nullptr);
  watch.stands = false;
}

}  // namespace

void bind_stop(nb::module_& m) {
  m.def("watch_signal", &watch_signal, nb::arg("number"), nb::arg("text"), nb::arg("asks"),
        nb::arg("once"),
        "From now on, the signal writes `text` (at most 512 bytes) to standard error. If `asks` is "
        "true, it then asks trainings to stop, else it calls the handler that it had. `once`: a "
        "second signal does what the system does by default. Returns False, and changes nothing, "
        "if the signal is already watched or has no handler to call.");
  m.def("forget_signal", &forget_signal, nb::arg("number"),
        "Restores what a watched signal did before.");
  m.def(
      "forget_asked", [] { g_asked = 0; }, "Forgets the requests to stop so far.");
  m.def(
      "stop_asked", [] { return g_asked != 0; },
      "Returns True if a watched signal has asked trainings to stop.");
}

}  // namespace hetu
