#include "net/transport/rendezvous_words.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "net/transport/doorbell.h"
#include "net/transport/secret.h"
#include "net/transport/sha256.h"

namespace hetu::comm {
namespace {

constexpr std::size_t kLongestWords = 1000;

std::string file_text(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Returns the file that this code was loaded from: the program, or Python's extension module.
std::string own_file() {
  const auto here = reinterpret_cast<std::uintptr_t>(&own_file);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t first = 0, last = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &first, &last) == 2 && first <= here &&
        here < last) {
      const std::size_t at = line.find('/');
      return at == std::string::npos ? "" : line.substr(at);
    }
  }
  return {};
}

std::string own_build() {
  Sha256 sum;
  std::ifstream file(own_file(), std::ios::binary);
  std::vector<char> part(1 << 16);
  while (file.read(part.data(), static_cast<std::streamsize>(part.size())) || file.gcount() > 0)
    sum.add({part.data(), static_cast<std::size_t>(file.gcount())});
  return hex_of(sum.finish()).substr(0, 12);
}

std::string own_words() {
  std::string words = file_text("/proc/self/cmdline");
  std::replace(words.begin(), words.end(), '\0', ' ');
  if (!words.empty()) words.pop_back();
  return words.substr(0, kLongestWords);
}

bool read_int(const std::string& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Raises the limit of open files: every worker has a connection to every other.
void allow_sockets(int workers) {
  rlimit limit{};
  const rlim_t wanted = static_cast<rlim_t>(2 * workers) + 256;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(std::max(wanted, limit.rlim_cur), limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

std::string pack_hello(const Hello& h) {
  return pack_fields({h.nonce, std::to_string(h.rank), std::to_string(h.workers), h.member.host,
                      h.member.domain, std::to_string(h.member.pid), h.build, h.words});
}

std::optional<Hello> unpack_hello(const std::string& text) {
  const auto fields = unpack_fields(text);
  Hello h;
  if (!fields || fields->size() != 8 || !read_int((*fields)[1], h.rank) ||
      !read_int((*fields)[2], h.workers) || !read_int((*fields)[5], h.member.pid))
    return std::nullopt;
  h.nonce = (*fields)[0];
  h.member.host = (*fields)[3];
  h.member.domain = (*fields)[4];
  h.build = (*fields)[6];
  h.words = (*fields)[7];
  return h;
}

Hello own_hello(const RendezvousOptions& options) {
  std::array<char, 256> host{};
  Hello hello;
  hello.rank = options.rank;
  hello.workers = options.workers;
  hello.member.host = gethostname(host.data(), host.size() - 1) == 0 ? host.data() : "?";
  hello.member.domain = doorbell_domain();
  hello.member.pid = getpid();
  hello.build = own_build();
  hello.words = own_words();
  hello.nonce = random_bytes(16);
  return hello;
}

std::string name_of(int rank, const Member& member) {
  return fmt::format("rank {} (host {}, process {})", rank, member.host, member.pid);
}

std::string listed(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string where_of(const RendezvousOptions& options) {
  if (!options.name.empty()) return "the rendezvous of job " + options.name;
  const bool is_v6 = options.address.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", options.address, options.port)
               : fmt::format("{}:{}", options.address, options.port);
}

std::string Rendezvous::where() const { return where_of(options_); }

bool Rendezvous::spans_hosts() const {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.domain != members_[options_.rank].domain;
  });
}

// The name contains the user, so that users of one host do not block each other's ports.
Address meeting_point(const RendezvousOptions& options) {
  const std::string name = options.name.empty() ? std::to_string(options.port)
                                                : hex_of(sha256(options.name)).substr(0, 32);
  return unix_address(fmt::format("hetu-meet-{}-{}", geteuid(), name));
}

std::unique_ptr<Rendezvous> meet(const RendezvousOptions& options) {
  require(options.workers >= 1 && options.rank >= 0 && options.rank < options.workers,
          "there is no rank {} in a job of {} workers", options.rank, options.workers);
  allow_sockets(options.workers);
  return options.rank == 0 ? host_rendezvous(options) : join_rendezvous(options);
}

}  // namespace hetu::comm
