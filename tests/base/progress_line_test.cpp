#include "base/progress_line.h"

#include <gmock/gmock.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

namespace hetu {
namespace {

using testing::EndsWith;
using testing::StartsWith;

TEST(ProgressLine, SaysWhatIsDoneAndWhatIsLeft) {
  EXPECT_EQ(line_of("hetu x", "plans", 3, 12, 10), "hetu x: 3 of 12 plans, 0:10, about 0:30 left");
  EXPECT_EQ(line_of("hetu x", "plans", 0, 12, 10), "hetu x: 0 of 12 plans, 0:10");
  EXPECT_EQ(line_of("hetu x", "plans", 12, 12, 3725), "hetu x: 12 of 12 plans, 1:02:05");
  EXPECT_EQ(line_of("hetu x", "rows", 5, 0, 59.6), "hetu x: 5 rows, 1:00");
  EXPECT_EQ(line_of("hetu x", "", 0, 0, 0), "hetu x: 0:00");
}

// Replaces standard error by a terminal or a pipe while it exists, and returns what was written.
class ErrorOutput {
 public:
  explicit ErrorOutput(bool terminal) : before_(::dup(STDERR_FILENO)) {
    std::array<int, 2> ends = {};
    if (terminal) {
      winsize size{};
      size.ws_col = 30;
      EXPECT_EQ(::openpty(&ends[0], &ends[1], nullptr, nullptr, &size), 0);
    } else {
      EXPECT_EQ(::pipe(ends.data()), 0);
    }
    from_ = ends[0];
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
  }
  ErrorOutput(const ErrorOutput&) = delete;
  ErrorOutput& operator=(const ErrorOutput&) = delete;
  ~ErrorOutput() {
    restore();
    ::close(from_);
  }
  // Returns what is written until `end` appears.
  std::string until(const std::string& end) const {
    std::string text;
    char c = 0;
    while (text.find(end) == std::string::npos && ::read(from_, &c, 1) == 1) text += c;
    return text;
  }
  // Returns all that has been written, and a mark at its end.
  std::string written() {
    EXPECT_EQ(::write(STDERR_FILENO, "|", 1), 1);
    std::string text = until("|");
    restore();
    return text;
  }

 private:
  void restore() {
    if (before_ < 0) return;
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    before_ = -1;
  }
  int before_, from_ = -1;
};

TEST(ProgressLine, ShowsOneLineOnATerminalAfterTwoSecondsAndRemovesIt) {
  ErrorOutput errors(true);
  {
    const ProgressLine line("hetu x", "plans");
    const ReportProgress report = line;
    report(1, 4);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(errors.until("plans"), "\rhetu x: 1 of 4 plans");
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1900));
    line.close();
  }
  // The line is cut to 29 of 30 columns.
  const std::string written = errors.written();
  EXPECT_THAT(written, StartsWith(", 0:0"));
  EXPECT_THAT(written, EndsWith("\r" + std::string(29, ' ') + "\r|"));
}

TEST(ProgressLine, IsSilentForShortCommandsAndOutsideATerminal) {
  for (const bool terminal : {true, false}) {
    ErrorOutput errors(terminal);
    {
      const ProgressLine line("hetu x", "plans");
      line(1, 4);
      std::this_thread::sleep_for(std::chrono::milliseconds(terminal ? 300 : 2500));
    }
    EXPECT_EQ(errors.written(), "|");
  }
  ErrorOutput errors(true);
  const ProgressLine quiet("hetu x", "plans", true);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_EQ(errors.written(), "|");
}

}  // namespace
}  // namespace hetu
