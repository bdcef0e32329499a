// Source: NVIDIA, PTX ISA 9.0, "ldmatrix", "Matrix Fragments for mma.m16n8k8", "... mma.m16n8k16",
// "wmma.load". The distribution of wmma's elements over lanes is up to the implementation.
#include "tests/emulator/matrices.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "tests/emulator/accesses.h"
#include "tests/emulator/rounding.h"
#include "tests/emulator/warp.h"

namespace hetu::emulator {
namespace {

constexpr int kSide = 16;

template <class T>
float narrow(std::uint32_t word, int side) {
  return static_cast<float>(std::bit_cast<T>(static_cast<std::uint16_t>(word >> (16 * side))));
}

std::uint32_t word(Warp& warp, const Instruction& in, int number, int lane) {
  return warp.at<std::uint32_t>(in.operands[static_cast<std::size_t>(number)])[lane];
}
float number(Warp& warp, const Instruction& in, int of, int lane) {
  return std::bit_cast<float>(word(warp, in, of, lane));
}

template <bool Turned>
void load_matrices(Warp& warp, const Instruction& in, std::uint32_t) {
  const int count = in.address;  // number of results
  std::byte* rows[kLanes] = {};
  for (int lane = 0; lane < 8 * count; ++lane)
    rows[lane] = access(warp, in, lane, {in.space, address_of(warp, in, lane), 16}, Use::Read);
  for (int m = 0; m < count; ++m)
    for (int lane = 0; lane < kLanes; ++lane) {
      std::uint16_t pair[2];
      for (int side = 0; side < 2; ++side) {
        const int down = Turned ? lane % 4 * 2 + side : lane / 4;
        const int across = Turned ? lane / 4 : lane % 4 * 2 + side;
        std::memcpy(&pair[side], rows[8 * m + down] + 2 * across, 2);
      }
      std::memcpy(&warp.at<std::uint32_t>(in.operands[static_cast<std::size_t>(m)])[lane], pair, 4);
    }
}

/// The product d = a b + c with exact sums that are truncated at the end. Operands 0 to 3 are d, 4
/// to 7 a, 8 and 9 b, 10 to 13 c.
template <int Depth>
struct Factors {
  double a[kSide][Depth], b[Depth][8];

  void multiply(Warp& warp, const Instruction& in) const {
    for (int lane = 0; lane < kLanes; ++lane)
      for (int i = 0; i < 4; ++i) {
        double sum = number(warp, in, 10 + i, lane);
        for (int k = 0; k < Depth; ++k)
          sum += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
        warp.at<float>(in.operands[static_cast<std::size_t>(i)])[lane] = toward_zero(sum);
      }
  }
};

template <class T>
void multiply_narrow(Warp& warp, const Instruction& in, std::uint32_t) {
  Factors<16> of;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int side = 0; side < 2; ++side) {
      for (int i = 0; i < 4; ++i)
        of.a[g + i % 2 * 8][2 * t + side + i / 2 * 8] =
            narrow<T>(word(warp, in, 4 + i, lane), side);
      for (int i = 0; i < 2; ++i)
        of.b[2 * t + side + i * 8][g] = narrow<T>(word(warp, in, 8 + i, lane), side);
    }
  }
  of.multiply(warp, in);
}

void multiply_tf32(Warp& warp, const Instruction& in, std::uint32_t) {
  constexpr std::uint32_t kBits = 0xffffe000u;  // bits that the units use
  const auto cut = [&](int of, int lane) {
    return double{std::bit_cast<float>(word(warp, in, of, lane) & kBits)};
  };
  Factors<8> of;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i) of.a[g + i % 2 * 8][t + i / 2 * 4] = cut(4 + i, lane);
    for (int i = 0; i < 2; ++i) of.b[t + i * 4][g] = cut(8 + i, lane);
  }
  of.multiply(warp, in);
}

// wmma. In this implementation a lane holds eight neighbours of [16, 16], row by row. Two-byte
// floats are stored in pairs in four registers.

enum Lies { kRows = 1, kColumns = 2 };

/// Calls f(lane, i, address of element i) for the lane's elements of type T.
template <class T, class F>
void each_element(Warp& warp, const Instruction& in, Use use, const F& f) {
  const std::uint64_t begin = address_of(warp, in, 0);
  const auto step =
      static_cast<std::uint64_t>(word(warp, in, static_cast<int>(in.operands.size()) - 1, 0));
  if (begin % 32 != 0 || step * sizeof(T) % 16 != 0)
    warp.fail(in, 0,
              fmt::format("a matrix at {:#x} with rows {} bytes apart", begin, step * sizeof(T)));
  for (int lane = 0; lane < kLanes; ++lane) {
    if (address_of(warp, in, lane) != begin) warp.fail(in, lane, "lanes name different addresses");
    for (int i = 0; i < 8; ++i) {
      const auto row = static_cast<std::uint64_t>((lane * 8 + i) / kSide);
      const auto column = static_cast<std::uint64_t>((lane * 8 + i) % kSide);
      const std::uint64_t at = in.variant == kRows ? row * step + column : column * step + row;
      f(lane, i, access(warp, in, lane, {in.space, begin + at * sizeof(T), sizeof(T)}, use));
    }
  }
}

void load_narrow(Warp& warp, const Instruction& in, std::uint32_t) {
  each_element<std::uint16_t>(warp, in, Use::Read, [&](int lane, int i, const std::byte* from) {
    const Operand& to = in.operands[static_cast<std::size_t>(i / 2)];
    std::memcpy(warp.at<std::byte>(to) + lane * 4 + i % 2 * 2, from, 2);
  });
}
void load_sums(Warp& warp, const Instruction& in, std::uint32_t) {
  each_element<float>(warp, in, Use::Read, [&](int lane, int i, const std::byte* from) {
    std::memcpy(warp.at<std::byte>(in.operands[static_cast<std::size_t>(i)]) + lane * 4, from, 4);
  });
}
void store_sums(Warp& warp, const Instruction& in, std::uint32_t) {
  each_element<float>(warp, in, Use::Write, [&](int lane, int i, std::byte* to) {
    std::memcpy(to, warp.at<std::byte>(in.operands[static_cast<std::size_t>(i) + 1]) + lane * 4, 4);
  });
}

/// `Registers` is the number of registers of a factor. For float16 some of them are not used here.
template <class T, int Registers>
void multiply_square(Warp& warp, const Instruction& in, std::uint32_t) {
  double a[kSide][kSide], b[kSide][kSide];
  for (int e = 0; e < kSide * kSide; ++e) {
    const int lane = e / 8, r = e % 8 / 2;
    a[e / kSide][e % kSide] = narrow<T>(word(warp, in, 8 + r, lane), e % 2);
    b[e / kSide][e % kSide] = narrow<T>(word(warp, in, 8 + Registers + r, lane), e % 2);
  }
  for (int e = 0; e < kSide * kSide; ++e) {
    double sum = number(warp, in, 8 + 2 * Registers + e % 8, e / 8);
    for (int k = 0; k < kSide; ++k) sum += a[e / kSide][k] * b[k][e % kSide];
    warp.at<float>(in.operands[static_cast<std::size_t>(e % 8)])[e / 8] = toward_zero(sum);
  }
}

bool has(const std::string& opcode, const char* part) {
  return opcode.find(part) != std::string::npos;
}

}  // namespace

Meaning matrix_meaning(const std::string& opcode, int& variant) {
  variant = has(opcode, "aligned.row") ? kRows : kColumns;
  if (opcode == "ldmatrix.sync.aligned.m8n8.x4.shared.b16") return &load_matrices<false>;
  if (opcode == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") return &load_matrices<true>;
  if (opcode == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
    return &multiply_narrow<BFloat16>;
  if (opcode == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    return &multiply_narrow<Float16>;
  if (opcode == "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32") return &multiply_tf32;
  if (!has(opcode, "m16n16k16")) return nullptr;
  if (has(opcode, "wmma.load.a") || has(opcode, "wmma.load.b")) return &load_narrow;
  if (has(opcode, "wmma.load.c") && has(opcode, "f32")) return &load_sums;
  if (has(opcode, "wmma.store.d") && has(opcode, "f32")) return &store_sums;
  if (has(opcode, "m16n16k16.f32.bf16.bf16.f32")) return &multiply_square<BFloat16, 4>;
  if (has(opcode, "wmma.mma") && has(opcode, "m16n16k16.f32.f32"))
    return &multiply_square<Float16, 8>;
  return nullptr;
}

}  // namespace hetu::emulator
