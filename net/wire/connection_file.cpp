#include "net/wire/connection_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>

#include "base/error.h"
#include "net/wire/address.h"

namespace hetu::ps {

namespace {

constexpr const char* kHead = "hetu parameter servers 1";
constexpr std::size_t kKeyDigits = 64;
constexpr std::int64_t kLongestFile = 1 << 20;

[[noreturn]] void io(const char* doing, const std::string& path) {
  fail(Code::Io, "{} cannot be {}: {}", path, doing, std::strerror(errno));
}

bool is_key(const std::string& text) {
  return text.size() == kKeyDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Writes the text to an open descriptor, and closes the descriptor.
void write_to(int fd, const std::string& text, const std::string& path) {
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool closed = close(fd) == 0;
  if (!written || !closed) io("written", path);
}

/// Returns the text of a file. Throws Config unless the file belongs to this user and no other user
/// may access it.
std::string read_own(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) io("read", path);
  struct stat about {};
  fstat(fd, &about);
  std::string fault;
  if (!S_ISREG(about.st_mode)) {
    fault = "is not a regular file";
  } else if (about.st_uid != geteuid() && geteuid() != 0) {
    fault = fmt::format("belongs to user {}, not to you", about.st_uid);
  } else if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    fault = fmt::format("holds keys, but other users may access it (mode {:03o}); run chmod 600 {}",
                        about.st_mode & 0777, path);
  } else if (about.st_size > kLongestFile) {
    fault = fmt::format("has {} bytes, too many for a connection file", about.st_size);
  }
  std::string text(fault.empty() ? static_cast<std::size_t>(about.st_size) : 0, '\0');
  const bool is_read =
      text.empty() || read(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  if (!fault.empty()) fail(Code::Config, "{} {}", path, fault);
  if (!is_read) io("read", path);
  return text;
}

/// Parses a connection file line by line.
class Parser {
 public:
  explicit Parser(const std::string& path) : path_(path) {}

  Connection parse(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      ++number_;
      if (number_ == 1) {
        if (line != kHead) refuse("does not begin with '{}'", kHead);
      } else if (!line.empty() && line[0] != '#') {
        take(line);
      }
    }
    if (number_ == 0) refuse("is empty{}", "");
    if (found_.keys.server_public.empty()) refuse("has no line {}", "server-key");
    if (found_.keys.worker_public.empty()) refuse("has no line {}", "worker-key");
    for (int s = 0; s < found_.servers; ++s) {
      if (at_.count(s) == 0) {
        found_.address.clear();
        found_.missing = s;
        break;
      }
      const JobKeys& k = found_.keys;
      found_.address += (s > 0 ? ";" : "") +
                        write_address(at_[s], k.server_public, k.worker_public, k.worker_secret);
    }
    return found_;
  }

 private:
  template <class T>
  [[noreturn]] void refuse(fmt::format_string<T> format, T&& value) const {
    fail(Code::Config, "{}, line {}: not a connection file of `hetu ps serve`: it {}", path_,
         std::max(number_, 1), fmt::format(format, std::forward<T>(value)));
  }

  void take(const std::string& line) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "server-key") {
      take_keys(words, found_.keys.server_public, found_.keys.server_secret, false);
    } else if (word == "worker-key") {
      take_keys(words, found_.keys.worker_public, found_.keys.worker_secret, true);
    } else if (word == "server") {
      take_server(line);
    } else {
      refuse("has a line with the unknown key '{}'", word.substr(0, 20));
    }
  }

  void take_keys(std::istringstream& words, std::string& to_public, std::string& to_secret,
                 bool needs_secret) const {
    words >> to_public >> to_secret;
    if (!is_key(to_public) || (!is_key(to_secret) && (needs_secret || !to_secret.empty()))) {
      refuse("has keys that are not {} hexadecimal digits each", kKeyDigits);
    }
  }

  void take_server(const std::string& line) {
    int server = 0;
    int servers = 0;
    int rest = 0;
    if (std::sscanf(line.c_str(), "server %d of %d at %n", &server, &servers, &rest) != 2 ||
        rest == 0 || server < 0 || server >= servers || line.size() == std::size_t(rest)) {
      refuse("has a line that is not of the form '{}'", "server K of N at ENDPOINTS");
    }
    if (found_.servers != 0 && servers != found_.servers) {
      refuse("has lines with different numbers of servers, of which the first is {}",
             found_.servers);
    }
    found_.servers = servers;
    at_[server] = line.substr(static_cast<std::size_t>(rest));
  }

  const std::string& path_;
  int number_ = 0;
  Connection found_;
  std::map<int, std::string> at_;
};

}  // namespace

// Writes the file under another name and links it, so that readers only see complete files.
bool make_connection_file(const std::string& path, const JobKeys& keys) {
  const std::string temporary = fmt::format("{}.{}", path, getpid());
  unlink(temporary.c_str());
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) io("created", path);
  write_to(fd,
           fmt::format("{}\nserver-key {} {}\nworker-key {} {}\n", kHead, keys.server_public,
                       keys.server_secret, keys.worker_public, keys.worker_secret),
           path);
  const bool is_made = link(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(temporary.c_str());
  errno = error;
  if (!is_made && error != EEXIST) io("created", path);
  return is_made;
}

Connection read_connection_file(const std::string& path) {
  return Parser(path).parse(read_own(path));
}

// A single write in append mode, so that servers that start at the same time don't mix their lines.
void add_server(const std::string& path, int server, int servers, const std::string& endpoints) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) io("written", path);
  write_to(fd, fmt::format("server {} of {} at {}\n", server, servers, endpoints), path);
}

std::string address_from(const std::string& text) {
  const std::size_t at = text.rfind('@');
  if (at != std::string::npos && text.size() - at - 1 == 3 * kKeyDigits) return text;
  if (text.rfind("tcp://", 0) == 0 || text.rfind("ipc://", 0) == 0) {
    fail(Code::Config, "{} has no keys; give the connection file that `hetu ps serve` wrote",
         text.substr(0, 100));
  }
  const Connection found = read_connection_file(text);
  if (found.address.empty()) {
    fail(Code::Config, "{} has no address of server {}{}; start the server with `hetu ps serve`",
         text, found.missing, found.servers > 0 ? fmt::format(" of {}", found.servers) : "");
  }
  return found.address;
}

}  // namespace hetu::ps
