// Locks of fcntl(2) belong to a process: a forked child doesn't inherit them, and NFS forwards them
// to the server. Two properties need care. A process succeeds in getting a lock that it already
// holds, and it loses a lock as soon as it closes any descriptor of the file. Therefore a table of
// this process keeps one descriptor per folder, which all lockers of the folder in this process
// share.
#include "executor/state/folder_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = ".hetu-lock";
// Longest wait for the text of a process that has just acquired the lock.
constexpr std::chrono::seconds kTextTime{2};

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

struct Holder {
  std::string job, host, process;
};

Holder read_holder(int file) {
  std::array<char, 1024> text{};
  const ssize_t count = ::pread(file, text.data(), text.size() - 1, 0);
  const std::string_view all(text.data(), count < 0 ? 0 : static_cast<std::size_t>(count));
  Holder holder;
  std::size_t at = 0;
  for (std::string* part : {&holder.job, &holder.host, &holder.process}) {
    const std::size_t end = all.find('\n', at);
    if (end == std::string_view::npos) return {};
    *part = all.substr(at, end - at);
    at = end + 1;
  }
  return holder;
}

struct flock whole_file() {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return whole;
}

bool try_lock(int file) {
  struct flock whole = whole_file();
  return ::fcntl(file, F_SETLK, &whole) == 0;
}

// Returns true if the text in the file may be older than the lock: the file is empty, or it names
// another process than the current holder. A holder writes its text after it gets the lock, and a
// killed holder leaves its text behind.
bool may_be_older(int file, const Holder& holder) {
  if (holder.process.empty()) return true;
  struct flock whole = whole_file();
  if (::fcntl(file, F_GETLK, &whole) != 0 || whole.l_type == F_UNLCK) return true;
  return holder.host != host_name() || holder.process != std::to_string(whole.l_pid);
}

bool is_linked(int file, const std::string& path) {
  struct stat open {
  }, there{};
  return ::fstat(file, &open) == 0 && ::stat(path.c_str(), &there) == 0 &&
         open.st_ino == there.st_ino && open.st_dev == there.st_dev;
}

// Writes three lines: the job (or an empty line), the host, the process.
void write_holder(int file, const std::string& folder, const std::string& job) {
  const std::string text = fmt::format("{}\n{}\n{}\n", job, host_name(), ::getpid());
  if (::ftruncate(file, 0) != 0 ||
      ::pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    fail(Code::Io, "{}: cannot save in this folder: {}", folder, std::strerror(errno));
}

// A lock that this process holds. There is one entry per folder, which all lockers of the folder
// share.
struct Held {
  std::string path;  // path of the lock file
  int file = -1;  // -1: another process of this job holds the lock, or the file system has no locks
  int users = 0;
  bool made_folder = false;
  pid_t process = 0;
};

std::mutex& table_mutex() {
  static std::mutex one;
  return one;
}

// Locks by the canonical path of the folder; guarded by table_mutex().
std::map<std::string, Held>& table() {
  static std::map<std::string, Held> all;
  return all;
}

[[noreturn]] void refuse_writing(const std::string& folder, int error) {
  fail(Code::Io, "{}: cannot save in this folder: {}", folder, std::strerror(error));
}

[[noreturn]] void refuse_second(const std::string& folder, const Holder& holder) {
  const std::string who = holder.process.empty()
                              ? "another job"
                              : fmt::format("process {} on host {}", holder.process, holder.host);
  fail(Code::Io, "{}: {} is saving there; wait until it ends, or choose another folder", folder,
       who);
}

// Returns the locked file, or -1 if the folder is used without a lock.
int lock_file(const std::string& path, const std::string& folder, const std::string& job) {
  const auto end = std::chrono::steady_clock::now() + kTextTime;
  for (;;) {
    const int file =
        ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (file < 0) refuse_writing(folder, errno);
    if (try_lock(file)) {
      if (is_linked(file, path)) return file;
      ::close(file);  // the previous holder removed the file in between
      continue;
    }
    const int error = errno;
    const Holder holder = read_holder(file);
    const bool wait = may_be_older(file, holder) && std::chrono::steady_clock::now() < end;
    ::close(file);
    if (error != EACCES && error != EAGAIN) {
      log(Level::Warning,
          "{}: this file system does not support locks ({}), so a second job that saves there is "
          "not detected",
          folder, std::strerror(error));
      return -1;
    }
    if (!job.empty() && holder.job == job) return -1;
    if (!wait) refuse_second(folder, holder);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void release(const Held& held, const std::string& folder) {
  if (held.file >= 0) {
    // The file is removed before the lock ends. Afterwards it may belong to another job.
    ::unlink(held.path.c_str());
    ::close(held.file);
  }
  if (held.made_folder) ::rmdir(folder.c_str());  // fails if something was saved
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const std::string& job) {
  std::error_code error;
  const bool made_folder = fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder)) {
    fail(Code::Io, "{}: the folder cannot be created: {}; choose a folder that can be written",
         folder, error ? error.message() : "the path is not a folder");
  }
  key_ = fs::canonical(folder).string();
  const std::lock_guard guard(table_mutex());
  Held& held = table()[key_];
  // Resets a new entry, or an entry of the parent process, whose locks a child doesn't have.
  if (held.process != ::getpid()) held = {};
  if (held.users++ > 0) return;
  held.path = key_ + "/" + kFile;
  held.made_folder = made_folder;
  held.process = ::getpid();
  try {
    held.file = lock_file(held.path, folder, job);
    if (held.file >= 0) write_holder(held.file, folder, job);
  } catch (...) {
    release(held, key_);
    table().erase(key_);
    throw;
  }
}

FolderLock::~FolderLock() {
  const std::lock_guard guard(table_mutex());
  const auto found = table().find(key_);
  // A forked child must not remove the parent's lock file.
  if (found == table().end() || found->second.process != ::getpid()) return;
  if (--found->second.users > 0) return;
  release(found->second, key_);
  table().erase(found);
}

}  // namespace hetu
