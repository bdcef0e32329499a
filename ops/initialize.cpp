#include "ops/initialize.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/mix.h"
#include "ops/kernel.h"
#include "ops/philox.h"

namespace hetu {
namespace {

// Counter word 3 for initialisation. Dropout's word 3 never has all bits set, so the streams
// differ.
constexpr std::uint32_t kInitStream = 0xFFFFFFFFU;

// Up to this number of elements, one thread is faster than waking others.
constexpr std::int64_t kAlone = 1 << 10;

double unit(std::uint32_t bits) { return (static_cast<double>(bits) + 0.5) / 4294967296.0; }

class Draw {
 public:
  Draw(std::uint64_t key, std::int64_t element)
      : key0_(static_cast<std::uint32_t>(key)),
        key1_(static_cast<std::uint32_t>(key >> 32)),
        low_(static_cast<std::uint32_t>(element)),
        high_(static_cast<std::uint32_t>(static_cast<std::uint64_t>(element) >> 32)) {}

  double uniform() { return unit(next().word[0]); }

  double normal() {  // Box-Muller
    const Philox4 r = next();
    return std::sqrt(-2 * std::log(unit(r.word[0]))) *
           std::cos(2 * std::numbers::pi * unit(r.word[1]));
  }

 private:
  Philox4 next() { return philox4x32({{low_, high_, try_++, kInitStream}}, key0_, key1_); }
  std::uint32_t key0_, key1_, low_, high_;
  std::uint32_t try_ = 0;
};

double truncated(Draw& draw) {
  for (;;) {
    const double x = draw.normal();
    if (std::abs(x) <= 2) return x;
  }
}

}  // namespace

void initialize(const Initializer& init, std::string_view name, const Shape& shape,
                std::uint64_t seed, float* data) {
  initialize_part(init, name, shape, seed, {0, element_count(shape)}, data);
}

void initialize_part(const Initializer& init, std::string_view name, const Shape& shape,
                     std::uint64_t seed, ElementRange range, float* data) {
  // Elements of the window in a convolution's weights [out, in, height, width].
  double window = 1;
  for (std::size_t i = 2; i < shape.size(); ++i) window *= static_cast<double>(shape[i]);
  const std::int64_t in = shape.empty() ? 1 : shape[shape.size() > 1 ? 1 : 0];
  const double fan_in = static_cast<double>(in) * window;
  const double fan_out = shape.empty() ? 1 : static_cast<double>(shape[0]) * window;
  const double xavier = std::sqrt(2.0 / (fan_in + fan_out));
  const double kaiming = init.a / std::sqrt(init.b == 0 ? fan_in : fan_out);
  const std::uint64_t key = stable_hash(name) ^ (seed * kMixStep);
  using Kind = Initializer::Kind;
#pragma omp parallel for schedule(static) if (range.end - range.begin > kAlone)
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    Draw draw(key, i);
    double x = init.a;
    switch (init.kind) {
      case Kind::Constant:
        break;
      case Kind::Uniform:
        x = init.a + (init.b - init.a) * draw.uniform();
        break;
      case Kind::Normal:
        x = init.a + init.b * draw.normal();
        break;
      case Kind::TruncatedNormal:
        x = init.a + init.b * truncated(draw);
        break;
      case Kind::XavierNormal:
        x = xavier * draw.normal();
        break;
      case Kind::XavierUniform:
        x = xavier * std::sqrt(3.0) * (2 * draw.uniform() - 1);
        break;
      case Kind::KaimingNormal:
        x = kaiming * draw.normal();
        break;
      case Kind::KaimingUniform:
        x = kaiming * std::sqrt(3.0) * (2 * draw.uniform() - 1);
        break;
    }
    data[i - range.begin] = static_cast<float>(x);
  }
}

}  // namespace hetu
