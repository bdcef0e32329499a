#include "tests/emulator/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/emulator/program.h"

namespace hetu::emulator {
namespace {

/// Returns true if the access of `other` is ordered before the current one of `thread` by a meeting
/// of their warp.
bool ordered(unsigned other, std::uint32_t other_met, unsigned thread, std::uint32_t met) {
  return other == thread || (other / kLanes == thread / kLanes && other_met < met);
}

}  // namespace

void SharedMemory::begin() {
  ++now_;
  ++block_;
  std::fill(bytes_.begin(), bytes_.end(), std::byte{0xff});
}

std::string SharedMemory::written_by_another(std::size_t i, unsigned thread,
                                             std::uint32_t met) const {
  const Byte& b = known_[i];
  if (b.block == block_ && b.sender != kNobody)
    return fmt::format("cp.async of thread {} to byte {} of shared memory has not been waited for",
                       b.sender, i);
  if (b.written == now_ && !ordered(b.writer, b.writer_met, thread, met))
    return fmt::format("thread {} wrote byte {} of shared memory since the last barrier", b.writer,
                       i);
  return {};
}

std::string SharedMemory::reads(std::size_t offset, std::size_t bytes, unsigned thread,
                                std::uint32_t met) {
  for (std::size_t i = offset; i < offset + bytes; ++i) {
    Byte& b = known_[i];
    if (std::string problem = written_by_another(i, thread, met); !problem.empty()) return problem;
    if (b.read != now_) {
      b.read = now_;
      b.first_reader = b.last_reader = thread;
    } else {
      b.first_reader = std::min(b.first_reader, thread);
      b.last_reader = std::max(b.last_reader, thread);
    }
    b.reader_met = met;
  }
  return {};
}

std::string SharedMemory::writes(std::size_t offset, std::size_t bytes, unsigned thread,
                                 std::uint32_t met) {
  for (std::size_t i = offset; i < offset + bytes; ++i) {
    Byte& b = known_[i];
    if (std::string problem = written_by_another(i, thread, met); !problem.empty()) return problem;
    if (b.read == now_)
      for (const unsigned reader : {b.first_reader, b.last_reader})
        if (!ordered(reader, b.reader_met, thread, met))
          return fmt::format("thread {} read byte {} of shared memory since the last barrier",
                             reader, i);
    b.block = block_;
    b.written = now_;
    b.writer = thread;
    b.writer_met = met;
    b.sender = kNobody;
  }
  return {};
}

std::string SharedMemory::sends(std::size_t offset, std::size_t bytes, unsigned thread,
                                std::uint32_t met) {
  if (std::string problem = writes(offset, bytes, thread, met); !problem.empty()) return problem;
  for (std::size_t i = offset; i < offset + bytes; ++i) known_[i].sender = thread;
  return {};
}

void SharedMemory::land(const Flight& flight, unsigned thread, std::uint32_t met) {
  std::memcpy(at(flight.to), flight.from.data(), flight.bytes);
  for (std::size_t i = flight.to; i < flight.to + flight.bytes; ++i) {
    known_[i].sender = kNobody;
    known_[i].written = now_;
    known_[i].writer = thread;
    known_[i].writer_met = met;
  }
}

}  // namespace hetu::emulator
