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

// An access is aligned by its bytes, so that it lies in one page.
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
