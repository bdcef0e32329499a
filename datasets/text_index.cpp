#include "datasets/text_index.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "graph/base/error.h"
#include "graph/base/log.h"

namespace hetu {
namespace {

constexpr std::int64_t kMagic = 0x3158444954455448;  // "HTETIDX1"
// Magic, the text's size and time, sentences, documents.
using Head = std::array<std::int64_t, 5>;
constexpr std::size_t kHeadBytes = sizeof(Head);

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }

// One process at a time; where the file system has no locks, each for itself.
class Lock {
 public:
  explicit Lock(int descriptor) : descriptor_(descriptor) {
    while (flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~Lock() { flock(descriptor_, LOCK_UN); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  const int descriptor_;
};

// Where lines with something on them begin, of a text that comes piece by piece.
struct Lines {
  std::vector<std::int64_t> offsets, firsts;

  void take(std::string_view piece, std::int64_t begin) {
    for (std::size_t at = 0; at < piece.size();) {
      if (!in_sentence) {
        while (at < piece.size() && is_blank(piece[at])) ++at;
        if (at == piece.size()) return;
        if (piece[at] != '\n') begin_sentence(begin + static_cast<std::int64_t>(at));
      }
      at = std::min(piece.find('\n', at), piece.size());
      if (at == piece.size()) return;
      in_document = std::exchange(in_sentence, false);
      ++at;
    }
  }

 private:
  void begin_sentence(std::int64_t byte) {
    if (!in_document) firsts.push_back(static_cast<std::int64_t>(offsets.size()));
    offsets.push_back(byte);
    in_sentence = true;
  }

  bool in_sentence = false, in_document = false;
};

// Says how far it is, of texts that take a while.
class Progress {
 public:
  explicit Progress(const MappedFile& text) : text_(text) {}
  void at(std::int64_t byte) {
    using std::chrono::steady_clock;
    if (steady_clock::now() - last_ < std::chrono::seconds(5)) return;
    last_ = steady_clock::now();
    const auto all = static_cast<double>(text_.state().bytes);
    log(Level::Info, "{}: making its index, {:.0f} %", text_.path(),
        100 * static_cast<double>(byte) / all);
  }

 private:
  const MappedFile& text_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

TextIndex TextIndex::of(const MappedFile& text) {
  const std::string path = text.path() + ".hetu-index";
  if (auto found = from_file(path, text.state())) return std::move(*found);
  const Lock lock(text.descriptor());
  if (auto found = from_file(path, text.state())) return std::move(*found);
  TextIndex made = made_of(text);
  if (made.write(path, text.state())) {
    if (auto found = from_file(path, text.state())) return std::move(*found);
  }
  log(Level::Warning, "{} cannot be written: {}; each process keeps an index of its own", path,
      std::strerror(errno));
  return made;
}

// None: it is missing, of another text or an older one, or damaged, and to be made.
std::unique_ptr<TextIndex> TextIndex::from_file(const std::string& path, const FileState& text) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return nullptr;
  auto file = std::make_unique<MappedFile>(path);
  const std::string_view bytes = file->bytes();
  Head head = {};
  if (bytes.size() < kHeadBytes) return nullptr;
  std::memcpy(head.data(), bytes.data(), kHeadBytes);
  const auto [magic, text_bytes, changed, sentences, documents] = head;
  const auto numbers = static_cast<std::uint64_t>(bytes.size() - kHeadBytes) / 8;
  if (magic != kMagic || sentences < 0 || documents < 0 || sentences > text.bytes ||
      documents > sentences || numbers * 8 + kHeadBytes != bytes.size() ||
      numbers != static_cast<std::uint64_t>(sentences + documents) + 1)
    return nullptr;
  if (FileState{text_bytes, changed} != text) {
    log(Level::Info, "{}: was made of a file of {} bytes that has changed since; making it anew",
        path, text_bytes);
    return nullptr;
  }
  std::unique_ptr<TextIndex> out(new TextIndex);
  out->sentences_ = sentences;
  out->documents_ = documents;
  out->point_into(reinterpret_cast<const std::int64_t*>(bytes.data() + kHeadBytes));
  out->file_ = std::move(file);
  return out;
}

void TextIndex::point_into(const std::int64_t* offsets) {
  offsets_ = offsets;
  firsts_ = offsets + sentences_;
}

// Reads, rather than touches: pages that are mapped and read once would count as this process's.
TextIndex TextIndex::made_of(const MappedFile& text) {
  Lines lines;
  Progress progress(text);
  std::vector<char> piece(std::size_t{1} << 20);
  for (std::int64_t at = 0; at < text.state().bytes;) {
    const ssize_t count = pread(text.descriptor(), piece.data(), piece.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      fail(Code::Io, "{}: cannot be read at byte {}: {}", text.path(), at,
           count < 0 ? std::strerror(errno) : "it ends there now");
    }
    lines.take({piece.data(), static_cast<std::size_t>(count)}, at);
    at += count;
    progress.at(at);
  }
  TextIndex out;
  out.sentences_ = static_cast<std::int64_t>(lines.offsets.size());
  out.documents_ = static_cast<std::int64_t>(lines.firsts.size());
  lines.firsts.push_back(out.sentences_);
  out.numbers_ = std::move(lines.offsets);
  out.numbers_.insert(out.numbers_.end(), lines.firsts.begin(), lines.firsts.end());
  out.point_into(out.numbers_.data());
  return out;
}

// Whole or not at all; false, with errno: it cannot be.
bool TextIndex::write(const std::string& path, const FileState& text) const {
  const std::string unfinished = fmt::format("{}.{}", path, getpid());
  std::FILE* file = std::fopen(unfinished.c_str(), "wb");
  if (file == nullptr) return false;
  const Head head = {kMagic, text.bytes, text.changed_ns, sentences_, documents_};
  const bool is_written = std::fwrite(head.data(), kHeadBytes, 1, file) == 1 &&
                          std::fwrite(numbers_.data(), 8, numbers_.size(), file) == numbers_.size();
  const bool is_whole = std::fclose(file) == 0 && is_written;
  if (is_whole && std::rename(unfinished.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  std::remove(unfinished.c_str());
  errno = error;
  return false;
}

}  // namespace hetu
