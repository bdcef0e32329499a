#include "tests/emulator/global_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace hetu::emulator {

void GlobalMemory::begin_launch() {
  ++launch_;
  if (pages_.size() <= kKept) return;
  pages_.clear();
  last_ = nullptr;
}

// An access is aligned to its size, so it lies within one page.
GlobalMemory::Byte* GlobalMemory::at(std::uintptr_t address) {
  const std::uintptr_t number = address / kPage;
  if (last_ == nullptr || number != last_number_) {
    std::unique_ptr<Page>& page = pages_[number];
    if (page == nullptr) page = std::make_unique<Page>();
    last_ = page.get();
    last_number_ = number;
  }
  if (last_->launch != launch_) {
    last_->launch = launch_;
    last_->bytes.fill(Byte());
  }
  return &last_->bytes[address % kPage];
}

template <class Holds>
bool GlobalMemory::any_of(std::uintptr_t begin, std::size_t bytes, Holds holds) const {
  const std::uintptr_t end = begin + bytes;
  for (std::uintptr_t from = begin; from < end; from = (from / kPage + 1) * kPage) {
    const auto found = pages_.find(from / kPage);
    if (found == pages_.end() || found->second->launch != launch_) continue;
    const Byte* const page = found->second->bytes.data();
    const std::uintptr_t to = std::min(end, (from / kPage + 1) * kPage);
    if (std::any_of(page + from % kPage, page + from % kPage + (to - from), holds)) return true;
  }
  return false;
}

bool GlobalMemory::has_written(std::uintptr_t begin, std::size_t bytes) const {
  return any_of(begin, bytes, [](const Byte& b) { return b.writer != 0; });
}

bool GlobalMemory::has_touched(std::uintptr_t begin, std::size_t bytes) const {
  return any_of(begin, bytes, [](const Byte& b) { return b.writer != 0 || b.last_reader != 0; });
}

std::string GlobalMemory::reads(std::uintptr_t address, std::size_t bytes, std::uint32_t block) {
  Byte* b = at(address);
  for (std::size_t i = 0; i < bytes; ++i, ++b) {
    if (b->writer != 0 && b->writer != block)
      return fmt::format("block {} of this launch has written there", b->writer - 1);
    b->first_reader = b->first_reader == 0 ? block : std::min(b->first_reader, block);
    b->last_reader = std::max(b->last_reader, block);
  }
  return {};
}

std::string GlobalMemory::writes(std::uintptr_t address, std::size_t bytes, std::uint32_t block) {
  Byte* b = at(address);
  for (std::size_t i = 0; i < bytes; ++i, ++b) {
    if (b->writer != 0 && b->writer != block)
      return fmt::format("block {} of this launch has written there, too", b->writer - 1);
    for (const std::uint32_t reader : {b->first_reader, b->last_reader})
      if (reader != 0 && reader != block)
        return fmt::format("block {} of this launch has read there", reader - 1);
    b->writer = block;
  }
  return {};
}

}  // namespace hetu::emulator
