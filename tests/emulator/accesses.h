// Instructions that read and write memory: every access is checked as a card checks it, and where
// threads could be in each other's way.
#pragma once
#include <string>
#include <vector>

#include "tests/emulator/program.h"

namespace hetu::emulator {

void load(Warp& warp, const Instruction& in, std::uint32_t lanes);
void store(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// Of "atom", "global", "cas", "b32": null if it is not known.
Meaning change_of(const std::vector<std::string>& parts);
/// cp.async to shared memory, and its end.
void send(Warp& warp, const Instruction& in, std::uint32_t lanes);
void land(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// cvta: an address of a space to one of all, or (variant 1) back.
void change_space(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// A thread's own memory, from `variant` to `offset`.
void copy_local(Warp& warp, const Instruction& in, std::uint32_t lanes);

enum class Use { Read, Write, Change };
struct Bytes {
  Space space;
  std::uint64_t address;
  std::size_t count;
};
/// Where bytes lie, aligned by their number; fails where they may not be used so.
std::byte* access(Warp& warp, const Instruction& in, int lane, Bytes of, Use use);
/// The address that an access names.
std::uint64_t address_of(Warp& warp, const Instruction& in, int lane);

}  // namespace hetu::emulator
