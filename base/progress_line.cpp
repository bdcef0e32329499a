#include "base/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace hetu {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirst{2000}, kRedraw{200}, kLine{30000};

std::string clock_time(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::size_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : 80;
}

void write_all(const std::string& text) {
  // A command must not fail because its progress can't be shown.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

std::string line_of(const std::string& command, const std::string& unit, std::int64_t done,
                    std::int64_t all, double seconds) {
  std::string line = command + ": ";
  if (all > 0)
    line += fmt::format("{} of {} {}, ", done, all, unit);
  else if (done > 0)
    line += fmt::format("{} {}, ", done, unit);
  line += clock_time(seconds);
  if (done > 0 && done < all)
    line += fmt::format(", about {} left", clock_time(seconds * static_cast<double>(all - done) /
                                                      static_cast<double>(done)));
  return line;
}

// A thread draws, so that the time goes on while a single unit takes long.
struct ProgressLine::Display {
  Display(std::string command, std::string unit)
      : command(std::move(command)), unit(std::move(unit)) {
    drawer = std::thread([this] { draw(); });
  }
  Display(const Display&) = delete;
  Display& operator=(const Display&) = delete;
  ~Display() { close(); }

  void close() {
    {
      const std::lock_guard<std::mutex> lock(guard);
      over = true;
    }
    changed.notify_all();
    if (drawer.joinable()) drawer.join();
  }

  void draw() {
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    std::size_t width = 0;
    std::unique_lock<std::mutex> lock(guard);
    for (auto pause = terminal ? kFirst : kLine;
         !changed.wait_for(lock, pause, [&] { return over; }); pause = terminal ? kRedraw : kLine) {
      const std::chrono::duration<double> passed = steady_clock::now() - start;
      std::string line = line_of(command, unit, done, all, passed.count());
      if (!terminal) {
        write_all(line + "\n");
        continue;
      }
      line.resize(std::min(line.size(), terminal_columns() - 1));
      const std::size_t shown = line.size();
      if (shown < width) line.append(width - shown, ' ');
      width = shown;
      write_all("\r" + line);
    }
    if (width > 0) write_all("\r" + std::string(width, ' ') + "\r");
  }

  const std::string command, unit;
  const steady_clock::time_point start = steady_clock::now();
  std::mutex guard;
  std::condition_variable changed;
  bool over = false;
  std::int64_t done = 0, all = 0;
  std::thread drawer;
};

ProgressLine::ProgressLine(std::string command, std::string unit, bool quiet) {
  if (!quiet) display_ = std::make_shared<Display>(std::move(command), std::move(unit));
}

void ProgressLine::operator()(std::int64_t done, std::int64_t all) const {
  if (!display_) return;
  const std::lock_guard<std::mutex> lock(display_->guard);
  display_->done = done;
  display_->all = all;
}

void ProgressLine::close() const {
  if (display_) display_->close();
}

}  // namespace hetu
