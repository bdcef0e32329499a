#include "ps/server/record_file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "base/checksum.h"

namespace hetu::ps::server {

namespace {

constexpr std::size_t kGathered = std::size_t{1} << 20;  // most pending bytes
// a piece of this size is written without a copy
constexpr std::size_t kLarge = std::size_t{1} << 16;
using Head = std::array<std::uint32_t, 3>;

Head head_of(std::size_t bytes, std::uint32_t checksum) {
  Head head = {static_cast<std::uint32_t>(bytes), checksum, 0};
  head[2] = crc32c(head.data(), 2 * sizeof head[0]);
  return head;
}

void append(Bytes& to, const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  to.insert(to.end(), from, from + bytes);
}

}  // namespace

RecordWriter::RecordWriter(std::string path, std::int64_t bytes)
    : path_(std::move(path)), is_over_(false), bytes_(bytes), written_(bytes) {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd_ < 0) fail_to("open", bytes);
  if (ftruncate(fd_, bytes) != 0) {
    const int error = errno;
    close(fd_);
    errno = error;
    fail_to("cut", bytes);
  }
}

RecordWriter::RecordWriter(std::string path, Over /*over*/)
    : path_(std::move(path)), is_over_(true) {
  fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd_ < 0) fail_to("open", 0);
}

RecordWriter::~RecordWriter() { close(fd_); }

void RecordWriter::fail_to(const char* act, std::int64_t after) const {
  fail(Code::Io, "cannot {} {}: {}, after {} bytes; make room, or choose another folder for logs",
       act, path_, std::strerror(errno), after);
}

void RecordWriter::move_to(const std::string& path) {
  if (std::rename(path_.c_str(), path.c_str()) != 0) fail_to("rename", written_);
  path_ = path;
}

void RecordWriter::cut() {
  if (ftruncate(fd_, written_) != 0) fail_to("cut", written_);
}

void RecordWriter::add(std::initializer_list<Payload> pieces) {
  std::size_t bytes = 0;
  std::uint32_t checksum = 0;
  for (const Payload& piece : pieces) {
    bytes += piece.bytes;
    checksum = crc32c(piece.data, piece.bytes, checksum);
  }
  HETU_ASSERT(bytes <= std::numeric_limits<std::uint32_t>::max());
  const Head head = head_of(bytes, checksum);
  append(pending_, head.data(), sizeof head);
  std::vector<Payload> rest;  // the pieces from the first large one on
  for (const Payload& piece : pieces) {
    if (rest.empty() && piece.bytes < kLarge)
      append(pending_, piece.data, piece.bytes);
    else
      rest.push_back(piece);
  }
  bytes_ += static_cast<std::int64_t>(sizeof head + bytes);
  if (!rest.empty() || pending_.size() >= kGathered) write(rest);
}

void RecordWriter::flush() { write({}); }

// Writes the pending records and then `more`, the large pieces of the last record. Together they
// are complete records. In a file that overwrites an old one, the first head is written last, in a
// second call: until then the zeros of the previous write mark the end.
void RecordWriter::write(const std::vector<Payload>& more) {
  if (pending_.empty()) return;
  if (error_ != 0) {  // half a record may have been written
    errno = error_;
    fail_to("write", written_);
  }
  const Head zeros{};
  const std::size_t first = is_over_ ? sizeof(Head) : 0;
  std::vector<Payload> pieces = {{pending_.data() + first, pending_.size() - first}};
  pieces.insert(pieces.end(), more.begin(), more.end());
  if (is_over_) pieces.push_back({reinterpret_cast<const std::byte*>(zeros.data()), sizeof zeros});
  write_at(written_ + static_cast<std::int64_t>(first), pieces);
  if (is_over_) write_at(written_, {{pending_.data(), first}});
  written_ = bytes_;
  pending_.clear();
}

void RecordWriter::write_at(std::int64_t at, const std::vector<Payload>& pieces) {
  std::vector<iovec> left;
  for (const Payload& piece : pieces)
    if (piece.bytes > 0) left.push_back({const_cast<std::byte*>(piece.data), piece.bytes});
  for (std::size_t done = 0; done < left.size();) {
    const ssize_t count =
        pwritev(fd_, left.data() + done, static_cast<int>(left.size() - done), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      error_ = errno;
      fail_to("write", at);
    }
    at += count;
    auto taken = static_cast<std::size_t>(count);
    for (; done < left.size() && taken >= left[done].iov_len; ++done) taken -= left[done].iov_len;
    if (done == left.size()) break;
    left[done].iov_base = static_cast<std::byte*>(left[done].iov_base) + taken;
    left[done].iov_len -= taken;
  }
}

void RecordWriter::sync() {
  if (fdatasync(fd_) != 0) fail_to("sync", written_);
}

RecordReader::RecordReader(std::string path)
    : path_(std::move(path)), in_(path_, std::ios::binary | std::ios::ate) {
  if (!in_) fail(Code::Io, "cannot read {}: {}", path_, std::strerror(errno));
  size_ = in_.tellg();
  in_.seekg(0);
}

void RecordReader::fail_at(std::int64_t byte, const std::string& what) const {
  fail(Code::Io, "{}, byte {}: {}", path_, byte, what);
}

void RecordReader::read(void* to, std::size_t bytes) {
  in_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
  if (!in_) fail_at(bytes_, fmt::format("{} bytes cannot be read", bytes));
}

bool RecordReader::is_zero_from(std::int64_t byte) {
  in_.seekg(byte);
  return std::all_of(std::istreambuf_iterator<char>(in_), {}, [](char c) { return c == 0; });
}

// Returns true if a file that overwrote an old one ends here. Either no head was written, or a kill
// interrupted the write of a head that crosses the border of two pages.
bool RecordReader::is_end(const std::byte* head) {
  constexpr std::int64_t kPage = 4096;
  const std::int64_t to_next_page = kPage - bytes_ % kPage;
  const std::byte* end = head + sizeof(Head);
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  return std::all_of(head, end, is_zero) ||
         (to_next_page < static_cast<std::int64_t>(sizeof(Head)) &&
          std::all_of(head + to_next_page, end, is_zero));
}

RecordReader::Found RecordReader::next(Bytes& record) {
  const std::int64_t left = size_ - bytes_;
  Head head{};
  if (left == 0) return Found::End;
  if (left < static_cast<std::int64_t>(sizeof head)) return Found::Torn;
  read(head.data(), sizeof head);
  const auto [bytes, checksum, of_head] = head;
  if (head != head_of(bytes, checksum)) {
    if (ends_at_zeros_ && is_end(reinterpret_cast<const std::byte*>(head.data()))) {
      return Found::End;
    }
    if (is_zero_from(bytes_)) return Found::Torn;
    fail_at(bytes_, fmt::format("the log is damaged: no record begins here, and {} bytes follow",
                                left - static_cast<std::int64_t>(sizeof head)));
  }
  if (bytes > left - static_cast<std::int64_t>(sizeof head)) return Found::Torn;
  record.resize(bytes);
  read(record.data(), bytes);
  if (const std::uint32_t found = crc32c(record.data(), bytes); found != checksum) {
    fail_at(bytes_, fmt::format("the log is damaged: a record of {} bytes has checksum {}, but {} "
                                "was written",
                                bytes, crc_text(found), crc_text(checksum)));
  }
  bytes_ += static_cast<std::int64_t>(sizeof head) + bytes;
  return Found::Record;
}

}  // namespace hetu::ps::server
