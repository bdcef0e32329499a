// Source: NVIDIA, PTX ISA 9.0, "Floating Point Instructions".
#include <bit>
#include <cmath>
#include <limits>

#include "tests/emulator/forms.h"
#include "tests/emulator/rounding.h"

namespace hetu::emulator {
namespace {

/// Replaces subnormal numbers by zeros.
float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}
/// Sets the lower 32 bits to zero.
double upper_half(double x) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & 0xffffffff00000000u);
}

template <class T>
void comparisons(Forms& forms, const std::string& type) {
  const auto name = [&](const char* what) { return std::string("setp.") + what + "." + type; };
  define<bool, T, T>(forms, name("eq"), [](T a, T b) { return a == b; });
  define<bool, T, T>(forms, name("ne"), [](T a, T b) { return a < b || a > b; });
  define<bool, T, T>(forms, name("lt"), [](T a, T b) { return a < b; });
  define<bool, T, T>(forms, name("le"), [](T a, T b) { return a <= b; });
  define<bool, T, T>(forms, name("gt"), [](T a, T b) { return a > b; });
  define<bool, T, T>(forms, name("ge"), [](T a, T b) { return a >= b; });
  define<bool, T, T>(forms, name("equ"), [](T a, T b) { return !(a < b || a > b); });
  define<bool, T, T>(forms, name("neu"), [](T a, T b) { return a != b; });
  define<bool, T, T>(forms, name("ltu"), [](T a, T b) { return !(a >= b); });
  define<bool, T, T>(forms, name("leu"), [](T a, T b) { return !(a > b); });
  define<bool, T, T>(forms, name("gtu"), [](T a, T b) { return !(a <= b); });
  define<bool, T, T>(forms, name("geu"), [](T a, T b) { return !(a < b); });
  define<bool, T, T>(forms, name("num"), [](T a, T b) { return a == a && b == b; });
  define<bool, T, T>(forms, name("nan"), [](T a, T b) { return a != a || b != b; });
}

template <class T>
void arithmetic(Forms& forms, const std::string& type) {
  for (const char* const rounding : {".", ".rn."}) {
    const auto name = [&](const char* what) { return what + (rounding + type); };
    define<T, T, T>(forms, name("add"), [](T a, T b) { return a + b; });
    define<T, T, T>(forms, name("sub"), [](T a, T b) { return a - b; });
    define<T, T, T>(forms, name("mul"), [](T a, T b) { return a * b; });
    define<T, T, T>(forms, name("div"), [](T a, T b) { return a / b; });
    define<T, T>(forms, name("rcp"), [](T a) { return 1 / a; });
    define<T, T>(forms, name("sqrt"), [](T a) { return std::sqrt(a); });
    define<T, T, T, T>(forms, name("fma"), [](T a, T b, T c) { return std::fma(a, b, c); });
  }
  const auto name = [&](const char* what) { return what + ("." + type); };
  define<T, T, T>(forms, name("min"), [](T a, T b) { return std::fmin(a, b); });
  define<T, T, T>(forms, name("max"), [](T a, T b) { return std::fmax(a, b); });
  define<T, T>(forms, name("neg"), [](T a) { return -a; });
  define<T, T>(forms, name("abs"), [](T a) { return std::fabs(a); });
  define<T, T, T>(forms, name("copysign"), [](T sign, T a) { return std::copysign(a, sign); });
  define<T, T, T, bool>(forms, name("selp"), [](T a, T b, bool p) { return p ? a : b; });
  comparisons<T>(forms, type);
}

}  // namespace

void define_floats(Forms& forms) {
  arithmetic<float>(forms, "f32");
  arithmetic<double>(forms, "f64");
  define<float, float, float>(forms, "add.rz.f32",
                              [](float a, float b) { return toward_zero(double{a} + b); });
  define<float, float, float, float>(
      forms, "fma.rm.f32", [](float a, float b, float c) { return down(double{a} * b + c); });
  define<float, float>(forms, "ex2.approx.ftz.f32",
                       [](float a) { return flushed(std::exp2(flushed(a))); });
  define<float, float>(forms, "rcp.approx.ftz.f32",
                       [](float a) { return flushed(1 / flushed(a)); });
  define<double, double>(forms, "rcp.approx.ftz.f64", [](double a) { return upper_half(1 / a); });
}

}  // namespace hetu::emulator
