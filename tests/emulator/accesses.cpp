#include "tests/emulator/accesses.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "tests/emulator/warp.h"

namespace hetu::emulator {
namespace {

const char* name_of(Space space) {
  switch (space) {
    case Space::Shared:
      return "shared memory";
    case Space::Local:
      return "a thread's own memory";
    case Space::Parameter:
      return "parameters";
    default:
      return "the card's memory";
  }
}

template <class F>
void in_lanes(std::uint32_t lanes, const F& f) {
  for (; lanes != 0; lanes &= lanes - 1) f(std::countr_zero(lanes));
}

std::uint64_t number_in(Warp& warp, const Operand& o, int lane) {
  std::uint64_t made = 0;
  std::memcpy(&made, warp.at<std::byte>(o) + lane * o.bytes, static_cast<std::size_t>(o.bytes));
  return made;
}

std::uint64_t base_of(Warp& warp, Space space, int lane) {
  switch (space) {
    case Space::Shared:
      return reinterpret_cast<std::uintptr_t>(warp.block().shared.at(0));
    case Space::Local:
      return reinterpret_cast<std::uintptr_t>(warp.local(lane));
    case Space::Parameter:
      return reinterpret_cast<std::uintptr_t>(warp.block().parameters.data());
    default:
      return 0;
  }
}

std::size_t size_of(Warp& warp, Space space) {
  switch (space) {
    case Space::Shared:
      return warp.block().shared.size();
    case Space::Local:
      return warp.block().program.local_bytes;
    default:
      return warp.block().parameters.size();
  }
}

/// Converts an address that a kernel has computed to a pointer.
std::byte* pointer(std::uint64_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT
}

/// Returns the space of a generic address, and replaces the address by the offset in that space.
Space space_of(Warp& warp, std::uint64_t& address, int lane) {
  for (const Space space : {Space::Shared, Space::Local, Space::Parameter}) {
    const std::uint64_t base = base_of(warp, space, lane);
    if (address - base >= size_of(warp, space)) continue;
    address -= base;
    return space;
  }
  return Space::Global;
}

}  // namespace

std::uint64_t address_of(Warp& warp, const Instruction& in, int lane) {
  return number_in(warp, in.operands[static_cast<std::size_t>(in.address)], lane) +
         static_cast<std::uint64_t>(in.offset);
}

namespace {

std::byte* access_global(Warp& warp, const Instruction& in, int lane, const Bytes& of, Use use) {
  const auto [space, address, bytes] = of;
  const Allocation* const in_it = warp.block().memory.find(address);
  if (in_it == nullptr)
    warp.fail(in, lane, fmt::format("{} bytes at {:#x} are in no buffer", bytes, address));
  if (address + bytes > in_it->begin + in_it->bytes)
    warp.fail(in, lane,
              fmt::format("{} bytes at {} of a buffer of {}", bytes, address - in_it->begin,
                          in_it->bytes));
  GlobalMemory& uses = warp.block().memory.uses();
  std::string problem;  // atomic changes are allowed in any order
  if (use == Use::Read) problem = uses.reads(address, bytes, warp.block().number);
  if (use == Use::Write) problem = uses.writes(address, bytes, warp.block().number);
  if (!problem.empty()) warp.fail(in, lane, problem);
  return pointer(address);
}

void access_shared(Warp& warp, const Instruction& in, int lane, const Bytes& of, Use use) {
  SharedMemory& shared = warp.block().shared;
  const unsigned thread = warp.thread(lane);
  std::string problem;
  if (use != Use::Write) problem = shared.reads(of.address, of.count, thread, warp.meetings());
  if (use != Use::Read && problem.empty())
    problem = shared.writes(of.address, of.count, thread, warp.meetings());
  if (!problem.empty()) warp.fail(in, lane, problem);
}

}  // namespace

std::byte* access(Warp& warp, const Instruction& in, int lane, Bytes of, Use use) {
  if (of.space == Space::Generic) of.space = space_of(warp, of.address, lane);
  if (of.address % of.count != 0)
    warp.fail(in, lane, fmt::format("address {:#x} is not a multiple of {}", of.address, of.count));
  if (of.space == Space::Global) return access_global(warp, in, lane, of, use);
  const std::size_t size = size_of(warp, of.space);
  if (of.address > size || of.count > size - of.address)
    warp.fail(in, lane,
              fmt::format("{} bytes at {} of {}, which has {}", of.count, of.address,
                          name_of(of.space), size));
  if (of.space == Space::Parameter && use != Use::Read)
    warp.fail(in, lane, "parameters are not to be written");
  if (of.space == Space::Shared) access_shared(warp, in, lane, of, use);
  return pointer(base_of(warp, of.space, lane) + of.address);
}

void load(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const auto element = static_cast<std::size_t>(in.element_bytes);
  const auto elements = static_cast<std::size_t>(in.elements);
  in_lanes(lanes, [&](int lane) {
    const std::byte* from = access(
        warp, in, lane, {in.space, address_of(warp, in, lane), element * elements}, Use::Read);
    for (int i = 0; i < in.elements; ++i, from += element) {
      const Operand& to = in.operands[static_cast<std::size_t>(i)];
      std::uint64_t value = 0;
      std::memcpy(&value, from, element);
      if (in.signs && element < 8 && (value >> (8 * element - 1) & 1) != 0)
        value |= ~std::uint64_t{0} << (8 * element);
      std::memcpy(warp.at<std::byte>(to) + lane * to.bytes, &value,
                  static_cast<std::size_t>(to.bytes));
    }
  });
}

void store(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  const auto element = static_cast<std::size_t>(in.element_bytes);
  const auto elements = static_cast<std::size_t>(in.elements);
  in_lanes(lanes, [&](int lane) {
    std::byte* to = access(warp, in, lane,
                           {in.space, address_of(warp, in, lane), element * elements}, Use::Write);
    for (int i = 0; i < in.elements; ++i, to += element) {
      const std::uint64_t value =
          number_in(warp, in.operands[static_cast<std::size_t>(i) + 1], lane);
      std::memcpy(to, &value, element);
    }
  });
}

namespace {

/// Applies F to the old value and the operands. The old value is the result.
template <class T, class F>
void change(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  in_lanes(lanes, [&](int lane) {
    auto* const at = reinterpret_cast<T*>(
        access(warp, in, lane, {in.space, address_of(warp, in, lane), sizeof(T)}, Use::Change));
    const auto first = static_cast<std::size_t>(in.address) + 1;
    T given[2] = {};
    for (std::size_t i = first; i < in.operands.size(); ++i)
      given[i - first] = warp.at<T>(in.operands[i])[lane];
    const T was = *at;
    *at = F()(was, given[0], given[1]);
    warp.at<T>(in.operands[0])[lane] = was;
  });
}

template <class T, class F>
Meaning changing(F) {
  return &change<T, F>;
}

template <class T>
Meaning change_by(const std::string& how) {
  const auto add = [](T was, T x, T) { return static_cast<T>(was + x); };
  const auto most = [](T was, T x, T) { return was < x ? x : was; };
  const auto least = [](T was, T x, T) { return x < was ? x : was; };
  if (how == "add") return changing<T>(add);
  if (how == "max") return changing<T>(most);
  if (how == "min") return changing<T>(least);
  if (how == "cas") return changing<T>([](T was, T x, T y) { return was == x ? y : was; });
  if (how == "exch") return changing<T>([](T, T x, T) { return x; });
  if (how == "or") return changing<T>([](T was, T x, T) { return static_cast<T>(was | x); });
  if (how == "and") return changing<T>([](T was, T x, T) { return static_cast<T>(was & x); });
  if (how == "xor") return changing<T>([](T was, T x, T) { return static_cast<T>(was ^ x); });
  return nullptr;
}

}  // namespace

Meaning change_of(const std::vector<std::string>& parts) {
  const std::string& type = parts.back();
  for (const std::string& how : parts) {
    Meaning found = nullptr;
    if (type == "u32" || type == "b32") found = change_by<std::uint32_t>(how);
    if (type == "u64" || type == "b64") found = change_by<std::uint64_t>(how);
    if (type == "s32") found = change_by<std::int32_t>(how);
    if (type == "s64") found = change_by<std::int64_t>(how);
    if (found != nullptr) return found;
  }
  return nullptr;  // unordered sums of floats would differ between runs
}

void send(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  SharedMemory& shared = warp.block().shared;
  const auto bytes = static_cast<std::size_t>(in.element_bytes);
  in_lanes(lanes, [&](int lane) {
    const std::uint64_t to = number_in(warp, in.operands[0], lane);
    const std::uint64_t from = number_in(warp, in.operands[1], lane);
    const std::uint64_t there = number_in(warp, in.operands[2], lane);
    if (to % bytes != 0 || from % bytes != 0)
      warp.fail(in, lane, fmt::format("{:#x} or {:#x} is not a multiple of {}", to, from, bytes));
    if (to > shared.size() || bytes > shared.size() - to)
      warp.fail(
          in, lane,
          fmt::format("{} bytes at {} of shared memory, which has {}", bytes, to, shared.size()));
    if (there > bytes) warp.fail(in, lane, fmt::format("{} of {} bytes", there, bytes));
    Flight flight{to, bytes, std::vector<std::byte>(bytes)};
    if (there != 0)
      for (std::size_t i = 0; i < there; ++i)
        flight.from[i] = *access(warp, in, lane, {Space::Global, from + i, 1}, Use::Read);
    const std::string problem = shared.sends(to, bytes, warp.thread(lane), warp.meetings());
    if (!problem.empty()) warp.fail(in, lane, problem);
    warp.flights(lane).push_back(std::move(flight));
  });
}

void land(Warp& warp, const Instruction&, std::uint32_t lanes) {
  in_lanes(lanes, [&](int lane) {
    for (const Flight& flight : warp.flights(lane))
      warp.block().shared.land(flight, warp.thread(lane), warp.meetings());
    warp.flights(lane).clear();
  });
}

void change_space(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  in_lanes(lanes, [&](int lane) {
    const std::uint64_t base = base_of(warp, in.space, lane);
    const std::uint64_t from = number_in(warp, in.operands[1], lane);
    const std::uint64_t made = in.variant == 1 ? from - base : from + base;
    std::memcpy(warp.at<std::byte>(in.operands[0]) + lane * in.operands[0].bytes, &made,
                static_cast<std::size_t>(in.operands[0].bytes));
  });
}

void copy_local(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  in_lanes(lanes, [&](int lane) {
    std::memcpy(warp.local(lane) + in.offset, warp.local(lane) + in.variant,
                static_cast<std::size_t>(in.element_bytes));
  });
}

}  // namespace hetu::emulator
