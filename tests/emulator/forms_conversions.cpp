// Source: NVIDIA, PTX ISA 9.0, "cvt".
#include <bit>
#include <cmath>
#include <limits>

#include "base/bfloat16.h"
#include "base/float16.h"
#include "tests/emulator/forms.h"

namespace hetu::emulator {
namespace {

template <class D, class S>
void integer(Forms& forms, const std::string& to, const std::string& from) {
  define<D, S>(forms, "cvt." + to + "." + from, [](S a) { return static_cast<D>(a); });
}
template <class D>
void from_integers(Forms& forms, const std::string& to) {
  integer<D, std::int8_t>(forms, to, "s8");
  integer<D, std::uint8_t>(forms, to, "u8");
  integer<D, std::int16_t>(forms, to, "s16");
  integer<D, std::uint16_t>(forms, to, "u16");
  integer<D, std::int32_t>(forms, to, "s32");
  integer<D, std::uint32_t>(forms, to, "u32");
  integer<D, std::int64_t>(forms, to, "s64");
  integer<D, std::uint64_t>(forms, to, "u64");
}

/// Returns the nearest value that D can hold; 0 for NaN.
template <class D, class S>
D held(S x) {
  if (x != x) return 0;
  constexpr auto kLeast = std::numeric_limits<D>::min(), kMost = std::numeric_limits<D>::max();
  if (x <= static_cast<S>(kLeast)) return kLeast;
  if (x >= static_cast<S>(kMost)) return kMost;
  return static_cast<D>(x);
}

/// Defines the conversions rni, rzi, rmi and rpi to integers of type D.
template <class D, class S>
void whole(Forms& forms, const std::string& to, const std::string& from) {
  const auto name = [&](const char* how) { return how + ("." + to + "." + from); };
  define<D, S>(forms, name("cvt.rni"), [](S a) { return held<D>(std::nearbyint(a)); });
  define<D, S>(forms, name("cvt.rzi"), [](S a) { return held<D>(std::trunc(a)); });
  define<D, S>(forms, name("cvt.rmi"), [](S a) { return held<D>(std::floor(a)); });
  define<D, S>(forms, name("cvt.rpi"), [](S a) { return held<D>(std::ceil(a)); });
}
template <class S>
void whole_floats(Forms& forms, const std::string& type) {
  const auto name = [&](const char* how) { return how + ("." + type + "." + type); };
  define<S, S>(forms, name("cvt.rni"), [](S a) { return std::nearbyint(a); });
  define<S, S>(forms, name("cvt.rzi"), [](S a) { return std::trunc(a); });
  define<S, S>(forms, name("cvt.rmi"), [](S a) { return std::floor(a); });
  define<S, S>(forms, name("cvt.rpi"), [](S a) { return std::ceil(a); });
}

template <class D, class S>
void rounded(Forms& forms, const std::string& to, const std::string& from) {
  define<D, S>(forms, "cvt.rn." + to + "." + from, [](S a) { return static_cast<D>(a); });
}
template <class D>
void to_floats(Forms& forms, const std::string& to) {
  rounded<D, std::int16_t>(forms, to, "s16");
  rounded<D, std::uint16_t>(forms, to, "u16");
  rounded<D, std::int32_t>(forms, to, "s32");
  rounded<D, std::uint32_t>(forms, to, "u32");
  rounded<D, std::int64_t>(forms, to, "s64");
  rounded<D, std::uint64_t>(forms, to, "u64");
}

template <class S>
void to_integers(Forms& forms, const std::string& from) {
  whole<std::int32_t, S>(forms, "s32", from);
  whole<std::uint32_t, S>(forms, "u32", from);
  whole<std::int64_t, S>(forms, "s64", from);
  whole<std::uint64_t, S>(forms, "u64", from);
}

template <class Narrow>
std::uint32_t pair(float upper, float lower) {
  return std::uint32_t{std::bit_cast<std::uint16_t>(Narrow(upper))} << 16 |
         std::bit_cast<std::uint16_t>(Narrow(lower));
}
template <class Narrow>
void narrow(Forms& forms, const std::string& type) {
  define<float, std::uint16_t>(forms, "cvt.f32." + type, [](std::uint16_t a) {
    return static_cast<float>(std::bit_cast<Narrow>(a));
  });
  define<std::uint16_t, float>(forms, "cvt.rn." + type + ".f32",
                               [](float a) { return std::bit_cast<std::uint16_t>(Narrow(a)); });
  define<std::uint32_t, float, float>(forms, "cvt.rn." + type + "x2.f32",
                                      [](float a, float b) { return pair<Narrow>(a, b); });
}

}  // namespace

void define_conversions(Forms& forms) {
  from_integers<std::int16_t>(forms, "s16");
  from_integers<std::uint16_t>(forms, "u16");
  from_integers<std::int32_t>(forms, "s32");
  from_integers<std::uint32_t>(forms, "u32");
  from_integers<std::int64_t>(forms, "s64");
  from_integers<std::uint64_t>(forms, "u64");
  to_floats<float>(forms, "f32");
  to_floats<double>(forms, "f64");
  rounded<float, double>(forms, "f32", "f64");
  define<double, float>(forms, "cvt.f64.f32", [](float a) { return double{a}; });
  to_integers<float>(forms, "f32");
  to_integers<double>(forms, "f64");
  whole_floats<float>(forms, "f32");
  whole_floats<double>(forms, "f64");
  narrow<Float16>(forms, "f16");
  narrow<BFloat16>(forms, "bf16");
  define<float, float>(forms, "cvt.sat.f32.f32",
                       [](float a) { return a > 0 ? std::fmin(a, 1.0F) : 0.0F; });
}

}  // namespace hetu::emulator
