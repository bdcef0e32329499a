#include "ps/server/record_file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "graph/base/checksum.h"

namespace hetu::ps::server {

namespace {

constexpr std::size_t kGathered = std::size_t{1} << 20;  // bytes that wait at most
constexpr std::size_t kLarge = std::size_t{1} << 16;     // a piece that is not copied
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
    : path_(std::move(path)), bytes_(bytes), written_(bytes) {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd_ < 0) fail_to("open");
  if (ftruncate(fd_, bytes) != 0 || lseek(fd_, bytes, SEEK_SET) != bytes) {
    const int error = errno;
    close(fd_);
    errno = error;
    fail_to("cut");
  }
}

RecordWriter::~RecordWriter() { close(fd_); }

void RecordWriter::fail_to(const char* act) const {
  fail(Code::Io, "cannot {} {}: {}, after {} bytes; make room, or choose another folder for logs",
       act, path_, std::strerror(errno), written_);
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
  for (const Payload& piece : pieces) {
    if (piece.bytes >= kLarge)
      write_all(piece);
    else
      append(pending_, piece.data, piece.bytes);
  }
  bytes_ += static_cast<std::int64_t>(sizeof head + bytes);
  if (pending_.size() >= kGathered) flush();
}

void RecordWriter::flush() { write_all({}); }

// What is pending, and after it what is too large to wait with it.
void RecordWriter::write_all(const Payload& large) {
  std::size_t at = 0;
  const std::size_t total = pending_.size() + large.bytes;
  while (at < total) {
    const std::size_t begun = std::min(at, pending_.size());
    const std::size_t begun_large = at - begun;
    const std::array<iovec, 2> rest = {
        {{pending_.data() + begun, pending_.size() - begun},
         {const_cast<std::byte*>(large.data) + begun_large, large.bytes - begun_large}}};
    const ssize_t count = writev(fd_, rest.data(), 2);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_to("write");
    at += static_cast<std::size_t>(count);
    written_ += count;
  }
  pending_.clear();
}

void RecordWriter::sync() {
  if (fdatasync(fd_) != 0) fail_to("sync");
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

RecordReader::Found RecordReader::next(Bytes& record) {
  const std::int64_t left = size_ - bytes_;
  Head head{};
  if (left == 0) return Found::End;
  if (left < static_cast<std::int64_t>(sizeof head)) return Found::Torn;
  read(head.data(), sizeof head);
  const auto [bytes, checksum, of_head] = head;
  if (head != head_of(bytes, checksum)) {
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
