// Source: NVIDIA, PTX ISA 9.0, "Integer Arithmetic Instructions", "Logic and Shift Instructions".
#include <bit>
#include <limits>
#include <type_traits>

#include "tests/emulator/forms.h"

namespace hetu::emulator {
namespace {

using U8 = std::uint8_t;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
__extension__ using S128 = __int128;
__extension__ using U128 = unsigned __int128;

std::string of(const char* what, const std::string& type) { return what + ("." + type); }

/// Divides with a GPU's results where a CPU would trap, or with all ones where the ISA leaves the
/// result open.
template <class T>
T quotient(T a, T b) {
  if (b == 0) return static_cast<T>(~T{0});
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
  return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}

template <class T>
void comparisons(Forms& forms, const std::string& type) {
  define<bool, T, T>(forms, of("setp.eq", type), [](T a, T b) { return a == b; });
  define<bool, T, T>(forms, of("setp.ne", type), [](T a, T b) { return a != b; });
  define<bool, T, T>(forms, of("setp.lt", type), [](T a, T b) { return a < b; });
  define<bool, T, T>(forms, of("setp.le", type), [](T a, T b) { return a <= b; });
  define<bool, T, T>(forms, of("setp.gt", type), [](T a, T b) { return a > b; });
  define<bool, T, T>(forms, of("setp.ge", type), [](T a, T b) { return a >= b; });
}

template <class T>
void arithmetic(Forms& forms, const std::string& type) {
  using U = std::make_unsigned_t<T>;
  define<T, T, T>(forms, of("add", type), [](T a, T b) { return static_cast<T>(U(a) + U(b)); });
  define<T, T, T>(forms, of("sub", type), [](T a, T b) { return static_cast<T>(U(a) - U(b)); });
  define<T, T, T>(forms, of("mul.lo", type), [](T a, T b) {
    return static_cast<T>(static_cast<U64>(a) * static_cast<U64>(b));
  });
  define<T, T, T, T>(forms, of("mad.lo", type), [](T a, T b, T c) {
    return static_cast<T>(static_cast<U64>(a) * static_cast<U64>(b) + static_cast<U64>(c));
  });
  define<T, T, T>(forms, of("div", type), [](T a, T b) { return quotient(a, b); });
  define<T, T, T>(forms, of("rem", type), [](T a, T b) { return remainder(a, b); });
  define<T, T, T>(forms, of("min", type), [](T a, T b) { return std::min(a, b); });
  define<T, T, T>(forms, of("max", type), [](T a, T b) { return std::max(a, b); });
  define<T, T>(forms, of("neg", type), [](T a) { return static_cast<T>(0 - U(a)); });
  define<T, T>(forms, of("abs", type), [](T a) { return a < 0 ? static_cast<T>(0 - U(a)) : a; });
  define<T, T, T, bool>(forms, of("selp", type), [](T a, T b, bool p) { return p ? a : b; });
  define<T, T, U32>(forms, of("shr", type), [](T a, U32 by) {
    constexpr U32 kBits = 8 * sizeof(T);
    if (by >= kBits) return static_cast<T>(a < 0 ? -1 : 0);
    return static_cast<T>(a >> by);
  });
  comparisons<T>(forms, type);
}

/// Defines products and sums of twice the width, and their upper halves.
template <class T, class Wide>
void wide(Forms& forms, const std::string& type) {
  if constexpr (sizeof(Wide) <= 8) {
    using U = std::make_unsigned_t<Wide>;
    define<Wide, T, T>(forms, of("mul.wide", type), [](T a, T b) { return Wide{a} * Wide{b}; });
    define<Wide, T, T, Wide>(forms, of("mad.wide", type), [](T a, T b, Wide c) {
      return static_cast<Wide>(U(Wide{a} * Wide{b}) + U(c));
    });
  }
  define<T, T, T>(forms, of("mul.hi", type),
                  [](T a, T b) { return static_cast<T>((Wide{a} * Wide{b}) >> (8 * sizeof(T))); });
  define<T, T, T, T>(forms, of("mad.hi", type), [](T a, T b, T c) {
    return static_cast<T>(((Wide{a} * Wide{b}) >> (8 * sizeof(T))) + c);
  });
}

template <class T>
T inserted(T a, T into, U32 at, U32 bits) {
  constexpr U32 kBits = 8 * sizeof(T);
  at &= 0xff;
  bits &= 0xff;
  if (at >= kBits || bits == 0) return into;
  const T mask = bits >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << bits) - 1);
  return static_cast<T>((into & ~(mask << at)) | ((a & mask) << at));
}

template <class T>
void bits(Forms& forms, const std::string& type) {
  define<T, T, T>(forms, of("and", type), [](T a, T b) { return static_cast<T>(a & b); });
  define<T, T, T>(forms, of("or", type), [](T a, T b) { return static_cast<T>(a | b); });
  define<T, T, T>(forms, of("xor", type), [](T a, T b) { return static_cast<T>(a ^ b); });
  define<T, T>(forms, of("not", type), [](T a) { return static_cast<T>(~a); });
  define<T, T, U32>(forms, of("shl", type), [](T a, U32 by) {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << by);
  });
  define<T, T, U32>(forms, of("shr", type), [](T a, U32 by) {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(a >> by);
  });
  define<T, T, T, bool>(forms, of("selp", type), [](T a, T b, bool p) { return p ? a : b; });
  define<U32, T>(forms, of("clz", type), [](T a) { return static_cast<U32>(std::countl_zero(a)); });
  define<U32, T>(forms, of("popc", type), [](T a) { return static_cast<U32>(std::popcount(a)); });
  define<T, T, T, U32, U32>(forms, of("bfi", type),
                            [](T a, T b, U32 at, U32 bits) { return inserted(a, b, at, bits); });
  comparisons<T>(forms, type);
}

/// Selects each byte of the result from the eight bytes of a and b by four bits. If the fourth bit
/// is set, the byte's sign is replicated.
U32 permuted(U32 a, U32 b, U32 by) {
  const U64 all = U64{b} << 32 | a;
  U32 made = 0;
  for (int i = 0; i < 4; ++i) {
    const U32 which = by >> (4 * i) & 0xf;
    U32 byte = static_cast<U32>(all >> (8 * (which & 7))) & 0xff;
    if ((which & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    made |= byte << (8 * i);
  }
  return made;
}

// Instructions that use the carry of the lane's last such instruction.

enum class Adds { Sum, Difference, LowProduct, HighProduct };

template <Adds adds, bool takes, bool gives>
void carrying(Warp& warp, const Instruction& in, std::uint32_t lanes) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes >> lane & 1) == 0) continue;
    const auto number = [&](std::size_t i) { return U64{warp.at<U32>(in.operands[i])[lane]}; };
    const U64 carry = takes ? warp.carry[lane] : 0, product = number(1) * number(2);
    U64 made = 0;
    switch (adds) {
      case Adds::Sum:
        made = number(1) + number(2) + carry;
        break;
      case Adds::Difference:
        made = number(1) - number(2) - carry;
        break;
      case Adds::LowProduct:
        made = (product & 0xffffffffu) + number(3) + carry;
        break;
      case Adds::HighProduct:
        made = (product >> 32) + number(3) + carry;
        break;
    }
    warp.at<U32>(in.operands[0])[lane] = static_cast<U32>(made);
    if (gives) warp.carry[lane] = static_cast<U32>(made >> 32 & 1);
  }
}

template <Adds adds>
void carries(Forms& forms, const char* name, const char* with, const char* rest, int operands) {
  const std::vector<int> bytes(static_cast<std::size_t>(operands), 4);
  for (const char* const type : {".u32", ".s32"}) {
    forms[std::string(name) + rest + ".cc" + type] = {&carrying<adds, false, true>, bytes};
    forms[std::string(with) + rest + ".cc" + type] = {&carrying<adds, true, true>, bytes};
    forms[std::string(with) + rest + type] = {&carrying<adds, true, false>, bytes};
  }
}

void predicates(Forms& forms) {
  define<bool, bool, bool>(forms, "and.pred", [](bool a, bool b) { return a && b; });
  define<bool, bool, bool>(forms, "or.pred", [](bool a, bool b) { return a || b; });
  define<bool, bool, bool>(forms, "xor.pred", [](bool a, bool b) { return a != b; });
  define<bool, bool>(forms, "not.pred", [](bool a) { return !a; });
}

}  // namespace

void define_integers(Forms& forms) {
  bits<U16>(forms, "b16");
  bits<U32>(forms, "b32");
  bits<U64>(forms, "b64");
  arithmetic<std::int16_t>(forms, "s16");
  arithmetic<U16>(forms, "u16");
  arithmetic<std::int32_t>(forms, "s32");
  arithmetic<U32>(forms, "u32");
  arithmetic<std::int64_t>(forms, "s64");
  arithmetic<U64>(forms, "u64");
  wide<std::int16_t, std::int32_t>(forms, "s16");
  wide<U16, U32>(forms, "u16");
  wide<std::int32_t, std::int64_t>(forms, "s32");
  wide<U32, U64>(forms, "u32");
  wide<std::int64_t, S128>(forms, "s64");
  wide<U64, U128>(forms, "u64");
  predicates(forms);
  define<U32, U32, U32, U32>(forms, "prmt.b32",
                             [](U32 a, U32 b, U32 by) { return permuted(a, b, by); });
  carries<Adds::Sum>(forms, "add", "addc", "", 3);
  carries<Adds::Difference>(forms, "sub", "subc", "", 3);
  carries<Adds::LowProduct>(forms, "mad", "madc", ".lo", 4);
  carries<Adds::HighProduct>(forms, "mad", "madc", ".hi", 4);
}

}  // namespace hetu::emulator
