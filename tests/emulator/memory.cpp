#include "tests/emulator/memory.h"

#include <cstring>
#include <iterator>
#include <new>

namespace hetu::emulator {
namespace {

constexpr std::size_t kGuard = 256;  // bytes behind each allocation
constexpr std::align_val_t kAlignment{256};

}  // namespace

Memory::~Memory() {
  for (const auto& [begin, of] : all_)
    ::operator delete(reinterpret_cast<void*>(begin), kAlignment);  // NOLINT: the key was one
}

void* Memory::allocate(std::size_t bytes, Kind kind) {
  if (kind == Kind::Device && bytes > most_ - used_) return nullptr;
  void* const made = ::operator new(bytes + kGuard, kAlignment, std::nothrow);
  if (made == nullptr) return nullptr;
  std::memset(made, 0xff, bytes + kGuard);
  const auto begin = reinterpret_cast<std::uintptr_t>(made);
  all_[begin] = {begin, bytes, kind};
  if (kind == Kind::Device) used_ += bytes;
  return made;
}

bool Memory::free(void* begin, Kind kind) {
  const auto found = all_.find(reinterpret_cast<std::uintptr_t>(begin));
  if (found == all_.end() || found->second.kind != kind) return false;
  if (kind == Kind::Device) used_ -= found->second.bytes;
  last_ = nullptr;
  all_.erase(found);
  ::operator delete(begin, kAlignment);
  return true;
}

const Allocation* Memory::find(std::uintptr_t address) const {
  const auto holds = [&](const Allocation& a) { return address - a.begin < a.bytes; };
  if (last_ != nullptr && holds(*last_)) return last_;
  const auto after = all_.upper_bound(address);
  if (after == all_.begin()) return nullptr;
  const Allocation& before = std::prev(after)->second;
  if (!holds(before)) return nullptr;
  last_ = &before;
  return last_;
}

}  // namespace hetu::emulator
