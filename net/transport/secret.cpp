// The secret of a job that spans hosts. A home folder that all hosts share makes the secret
// available without a setting. The file's owner and mode are checked, because any user who can read
// it could join the job.
#include "net/transport/secret.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "net/transport/sha256.h"

namespace hetu::comm {
namespace {

constexpr std::size_t kShortest = 16;
constexpr const char* kOtherwise =
    "set HETU_JOB_SECRET to the same text in all processes of the "
    "job";

std::string default_path() {
  const passwd* user = getpwuid(geteuid());
  if (user == nullptr || user->pw_dir == nullptr || *user->pw_dir == '\0')
    fail(Code::Io, "user {} has no home folder for the secret of jobs on several hosts; {}",
         geteuid(), kOtherwise);
  return std::string(user->pw_dir) + "/.config/hetu/job_secret";
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// A separate function that returns one local variable on its only path, so that the compiler elides
// the move. GCC 12 warns about that move otherwise.
std::string checked_line(const std::string& path) {
  std::string text = first_line(path);
  if (text.size() < kShortest)
    fail(Code::Io,
         "{}: the secret has {} characters, but at least {} are needed; remove the file, and the "
         "next job creates a new one",
         path, text.size(), kShortest);
  return text;
}

// Creates the file completely or not at all, even if several processes try at once: each writes a
// file under another name and links it.
void make_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::create_directories(fs::path(path).parent_path(), ignored);
  const std::string draft = path + "." + hex_of(sha256(random_bytes(32))).substr(0, 16);
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const std::string text = hex_of(sha256(random_bytes(32))) + "\n";
  const bool written =
      fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  int error = errno;
  if (fd >= 0) ::close(fd);
  const bool linked = written && (::link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
  if (written && !linked) error = errno;
  ::unlink(draft.c_str());
  if (!linked)
    fail(Code::Io, "{}: the secret of jobs on several hosts cannot be written: {}; {}", path,
         std::strerror(error), kOtherwise);
}

}  // namespace

std::string random_bytes(int count) {
  std::string bytes(count, '\0');
  if (::getrandom(bytes.data(), bytes.size(), 0) != count)
    fail(Code::Io, "the system returned no random bytes: {}", std::strerror(errno));
  return bytes;
}

std::string job_secret(const std::string& given, std::string path) {
  if (!given.empty()) {
    if (given.size() < kShortest)
      fail(Code::Config,
           "environment variable HETU_JOB_SECRET: got {} characters; it must have at least {} that "
           "nobody can guess",
           given.size(), kShortest);
    return given;
  }
  if (path.empty()) path = default_path();
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) {
    make_file(path);
    if (::stat(path.c_str(), &file) != 0)
      fail(Code::Io, "{}: {}; {}", path, std::strerror(errno), kOtherwise);
  }
  if (file.st_uid != geteuid() || (file.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    fail(Code::Io,
         "{}: the secret of jobs on several hosts must be a file of user {} with mode 600, but is "
         "a file of user {} with mode {:o}",
         path, geteuid(), file.st_uid, file.st_mode & 07777);
  return checked_line(path);
}

}  // namespace hetu::comm
