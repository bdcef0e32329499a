// Instructions that read and write memory. Every access is checked as a GPU checks it, and for
// races between threads.
#pragma once
#include <string>
#include <vector>

#include "tests/emulator/program.h"

namespace hetu::emulator {

void load(Warp& warp, const Instruction& in, std::uint32_t lanes);
void store(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// Returns the meaning of an atomic instruction such as "atom", "global", "cas", "b32", or null if
/// it is not supported.
Meaning change_of(const std::vector<std::string>& parts);
/// Runs cp.async to shared memory: `send` starts the copy, `land` completes it.
void send(Warp& warp, const Instruction& in, std::uint32_t lanes);
void land(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// Runs cvta: converts an address of a space to a generic address, or back (variant 1).
void change_space(Warp& warp, const Instruction& in, std::uint32_t lanes);
/// Copies a thread's local memory from `variant` to `offset`.
void copy_local(Warp& warp, const Instruction& in, std::uint32_t lanes);

enum class Use { Read, Write, Change };
struct Bytes {
  Space space;
  std::uint64_t address;
  std::size_t count;
};
/// Returns where `of.count` bytes are, which must be aligned to their number. Fails if they may not
/// be used in this way.
std::byte* access(Warp& warp, const Instruction& in, int lane, Bytes of, Use use);
/// Returns the address that an access names.
std::uint64_t address_of(Warp& warp, const Instruction& in, int lane);

}  // namespace hetu::emulator
