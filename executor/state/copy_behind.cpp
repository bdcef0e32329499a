// A plain copy of gigabytes slows down a training in three ways: it takes processor time, it
// competes for the disk, and it fills the page cache. So the copying thread has low priority for
// processor and disk, writes each chunk to disk at once, drops it from the cache, and sleeps most
// of the time.
#include "executor/state/copy_behind.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <exception>
#include <thread>

#include "base/error.h"

namespace hetu {
namespace {

constexpr std::size_t kCopiedAtOnce = 1 << 20;
// Sleep per time worked. With a factor of 3, concurrent training steps took 10 % longer.
constexpr int kRests = 20;
constexpr int kIdleOfDisk = 3 << 13;  // IOPRIO_CLASS_IDLE, which the C library's headers lack
constexpr int kOfThread = 1;          // IOPRIO_WHO_PROCESS

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags)
      : path_(path), number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    check(number_ >= 0, "open");
  }
  ~OpenFile() {
    if (number_ >= 0) ::close(number_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int number() const { return number_; }
  void check(bool ok, const char* what) const {
    if (!ok) fail(Code::Io, "cannot {} {}: {}", what, path_, std::strerror(errno));
  }

 private:
  const std::string path_;
  const int number_;
};

// Lowers the priority of this thread. SCHED_IDLE is not suitable: where all processors are busy all
// the time, an upload would hardly ever end. With nice 19 and SCHED_BATCH the thread has a weight
// of 15 where a training step has 1024, and does not preempt others when it wakes up. Errors are
// ignored: on a system without these priorities it is an ordinary thread.
void stand_behind() {
  const sched_param none{};
  sched_setscheduler(0, SCHED_BATCH, &none);
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 19);
  syscall(SYS_ioprio_set, kOfThread, 0, kIdleOfDisk);
}

// Returns the processor time of this thread.
std::chrono::nanoseconds worked() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

void write_all(const OpenFile& to, const char* data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = ::write(to.number(), data + done, bytes - done);
    to.check(n >= 0, "write");
    done += static_cast<std::size_t>(n);
  }
}

void copy_one(const std::string& from_path, const std::string& to_path) {
  const OpenFile from(from_path, O_RDONLY), to(to_path, O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<char> piece(kCopiedAtOnce);
  for (off_t at = 0;;) {
    const std::chrono::nanoseconds start = worked();
    const ssize_t n = ::read(from.number(), piece.data(), piece.size());
    from.check(n >= 0, "read");
    if (n == 0) break;
    write_all(to, piece.data(), static_cast<std::size_t>(n));
    // Not all file systems support these calls. Their errors are ignored, because fsync reports
    // write errors.
    sync_file_range(
        to.number(), at, n,
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    posix_fadvise(to.number(), at, n, POSIX_FADV_DONTNEED);
    posix_fadvise(from.number(), at, n, POSIX_FADV_DONTNEED);
    at += n;
    std::this_thread::sleep_for(kRests * (worked() - start));
  }
  to.check(::fsync(to.number()) == 0, "sync");
}

}  // namespace

void copy_behind(const std::vector<std::pair<std::string, std::string>>& files) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      stand_behind();
      for (const auto& [from, to] : files) copy_one(from, to);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

}  // namespace hetu
