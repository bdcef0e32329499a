#include "pipeline/ir/text_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "graph/base/error.h"

namespace hetu {
namespace {

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, Close>;

std::string reason() { return std::strerror(errno); }

void write_to(const std::string& path, std::string_view text) {
  File file(std::fopen(path.c_str(), "wb"));
  if (!file) fail(Code::Io, "{}: cannot be written: {}", path, reason());
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (!written || std::fflush(file.get()) != 0)
    fail(Code::Io, "{}: cannot be written: {}", path, reason());
}

}  // namespace

std::string read_text(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    fail(Code::Io, "{}: is a directory, wanted a file", path);
  File file(std::fopen(path.c_str(), "rb"));
  if (!file) fail(Code::Io, "{}: cannot be opened: {}", path, reason());
  constexpr std::size_t kMost = std::size_t{4} << 30;
  std::string text, block(1 << 20, '\0');
  while (const std::size_t n = std::fread(block.data(), 1, block.size(), file.get())) {
    text.append(block, 0, n);
    if (text.size() > kMost) fail(Code::Io, "{}: is larger than 4 GiB", path);
  }
  if (std::ferror(file.get())) fail(Code::Io, "{}: cannot be read: {}", path, reason());
  return text;
}

void write_text(const std::string& path, std::string_view text) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    write_to(path, text);
    return;
  }
  const std::string beside = fmt::format("{}.{}.tmp", path, ::getpid());
  try {
    write_to(beside, text);
    std::filesystem::rename(beside, path, error);
    if (error) fail(Code::Io, "{}: cannot be written: {}", path, error.message());
  } catch (...) {
    std::filesystem::remove(beside, error);
    throw;
  }
}

void check_nesting(std::string_view text, const std::string& origin) {
  constexpr int kMost = 64;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMost) fail(Code::Config, "{}: brackets nest deeper than {}", origin, kMost);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kMost = 200;
  std::string line(text.substr(0, kMost));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text.size() > kMost ? line + "…" : line;
}

}  // namespace hetu
