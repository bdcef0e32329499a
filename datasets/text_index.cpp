// Builds, reads and searches the index of a text.
//
// To find the document of a sentence in a text of millions of documents without holding them in
// memory, last_document searches twice. A binary search over every kStride-th document, which is in
// memory, finds the block. One read of kStride numbers and a second binary search find the document
// within it.
//
// The file is published safely without a server: the builder holds a lock on the text itself,
// writes to PATH.hetu-index.PID, and renames that file when it is complete. A process that waited
// for the lock then finds the index of the first one.
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

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"

namespace hetu {
namespace {

constexpr std::int64_t kMagic = 0x3258444954455448;  // "HTETIDX2"
// Magic number, the text's size and modification time, sentences, documents, and a CRC-32C of these
// and of all numbers.
using Head = std::array<std::int64_t, 6>;
constexpr std::size_t kHeadBytes = sizeof(Head);
constexpr std::size_t kCheckedHeadBytes = kHeadBytes - sizeof(std::int64_t);

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }

// An exclusive lock on the file. If the file system has no locks, it does nothing, and each process
// works on its own.
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

// The offsets of sentences and the first sentences of documents, collected from a text that comes
// block by block.
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

// A progress log that prints a line every 5 seconds, for large texts.
class Progress {
 public:
  explicit Progress(const RandomAccessFile& text) : text_(text) {}
  void at(std::int64_t byte) {
    using std::chrono::steady_clock;
    if (steady_clock::now() - last_ < std::chrono::seconds(5)) return;
    last_ = steady_clock::now();
    const auto all = static_cast<double>(text_.state().bytes);
    log(Level::Info, "{}: building its index, {:.0f} %", text_.path(),
        100 * static_cast<double>(byte) / all);
  }

 private:
  const RandomAccessFile& text_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

TextIndex TextIndex::of(const RandomAccessFile& text) {
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

// Returns nullptr if the index must be built: the file is missing, damaged, or belongs to another
// text or another state of it.
std::unique_ptr<TextIndex> TextIndex::from_file(const std::string& path, const FileState& text) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return nullptr;
  std::unique_ptr<TextIndex> out(new TextIndex);
  out->file_ = std::make_unique<RandomAccessFile>(path);
  const std::int64_t bytes = out->file_->state().bytes;
  Head head = {};
  if (bytes < static_cast<std::int64_t>(kHeadBytes)) return nullptr;
  out->file_->read(0, head.data(), kHeadBytes);
  const auto [magic, text_bytes, changed, sentences, documents, checksum] = head;
  const std::int64_t numbers = (bytes - static_cast<std::int64_t>(kHeadBytes)) / 8;
  if (magic != kMagic || sentences < 0 || documents < 0 || sentences > text_bytes ||
      documents > sentences || numbers != sentences + documents + 1 ||
      numbers * 8 + static_cast<std::int64_t>(kHeadBytes) != bytes)
    return nullptr;
  if (FileState{text_bytes, changed} != text) {
    log(Level::Info,
        "{}: the text file, then of {} bytes, has changed since this index was built; rebuilding "
        "it",
        path, text_bytes);
    return nullptr;
  }
  out->sentences_ = sentences;
  out->documents_ = documents;
  out->text_bytes_ = text_bytes;
  std::uint32_t found = crc32c(head.data(), kCheckedHeadBytes);
  out->file_->read_through(kHeadBytes, bytes, [&](std::string_view piece, std::int64_t at) {
    found = crc32c(piece.data(), piece.size(), found);
    std::vector<std::int64_t> read(piece.size() / 8);
    std::memcpy(read.data(), piece.data(), read.size() * 8);
    out->note_documents((at - static_cast<std::int64_t>(kHeadBytes)) / 8, read.data(),
                        std::ssize(read));
  });
  if (checksum != static_cast<std::int64_t>(found)) {
    log(Level::Warning, "{}: its checksum is wrong; rebuilding it", path);
    return nullptr;
  }
  return out;
}

// Stores every kStride-th document among `count` numbers of the file, the first of which has index
// `first`.
void TextIndex::note_documents(std::int64_t first, const std::int64_t* numbers,
                               std::int64_t count) {
  for (std::int64_t i = std::max<std::int64_t>(0, sentences_ - first); i < count; ++i)
    if ((first + i - sentences_) % kStride == 0) every_stride_.push_back(numbers[i]);
}

TextIndex TextIndex::made_of(const RandomAccessFile& text) {
  Lines lines;
  Progress progress(text);
  text.read_through(0, text.state().bytes, [&](std::string_view piece, std::int64_t at) {
    lines.take(piece, at);
    progress.at(at);
  });
  TextIndex out;
  out.sentences_ = static_cast<std::int64_t>(lines.offsets.size());
  out.documents_ = static_cast<std::int64_t>(lines.firsts.size());
  out.text_bytes_ = text.state().bytes;
  lines.firsts.push_back(out.sentences_);
  out.numbers_ = std::move(lines.offsets);
  out.numbers_.insert(out.numbers_.end(), lines.firsts.begin(), lines.firsts.end());
  out.note_documents(0, out.numbers_.data(), std::ssize(out.numbers_));
  return out;
}

void TextIndex::read(std::int64_t first, std::int64_t count, std::int64_t* out) const {
  HETU_ASSERT(first >= 0 && first + count <= sentences_ + documents_ + 1);
  if (file_)
    file_->read(static_cast<std::int64_t>(kHeadBytes) + first * 8, out,
                static_cast<std::size_t>(count) * 8);
  else
    std::copy_n(numbers_.begin() + first, count, out);
}

std::pair<std::int64_t, std::int64_t> TextIndex::bytes_of(std::int64_t sentence) const {
  std::int64_t found[2] = {0, text_bytes_};
  read(sentence, sentence + 1 < sentences_ ? 2 : 1, found);
  return {found[0], found[1]};
}

std::int64_t TextIndex::first_sentence(std::int64_t document) const {
  std::int64_t found = 0;
  read(sentences_ + document, 1, &found);
  return found;
}

std::int64_t TextIndex::last_document(
    std::int64_t documents,
    const std::function<bool(std::int64_t document, std::int64_t first)>& fits) const {
  // Returns the last index in [0, count) for which `holds` is true. It is true for 0.
  const auto last = [](std::int64_t count, const auto& holds) {
    std::int64_t low = 0, high = count;
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (holds(middle) ? low : high) = middle;
    }
    return low;
  };
  const std::int64_t begin =
      kStride * last((documents + kStride - 1) / kStride, [&](std::int64_t k) {
        return fits(k * kStride, every_stride_[static_cast<std::size_t>(k)]);
      });
  std::array<std::int64_t, kStride> block;
  const std::int64_t count = std::min(kStride, documents - begin);
  read(sentences_ + begin, count, block.data());
  return begin + last(count, [&](std::int64_t i) {
           return fits(begin + i, block[static_cast<std::size_t>(i)]);
         });
}

void TextIndex::check_unchanged() const {
  if (file_) file_->check_unchanged();
}

// Writes the index atomically. Returns false, with errno, if it cannot be written.
bool TextIndex::write(const std::string& path, const FileState& text) const {
  const std::string unfinished = fmt::format("{}.{}", path, getpid());
  std::FILE* file = std::fopen(unfinished.c_str(), "wb");
  if (file == nullptr) return false;
  Head head = {kMagic, text.bytes, text.changed_ns, sentences_, documents_, 0};
  head.back() =
      crc32c(numbers_.data(), numbers_.size() * 8, crc32c(head.data(), kCheckedHeadBytes));
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
