#include "datasets/cifar.h"

#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "datasets/augment.h"
#include "datasets/order.h"
#include "datasets/resample.h"

namespace hetu {
namespace {

constexpr int kSide = Cifar100::kSide;
constexpr int kPlane = kSide * kSide;
constexpr int kPad = 4;

// Converts to 16.16 fixed point, in which Pillow steps through an image that it rotates.
std::int64_t fixed(double value) {
  return static_cast<std::int64_t>(std::floor(value * 65536.0 + 0.5));
}

}  // namespace

CifarDraw draw_cifar(std::uint64_t seed, std::int64_t epoch, std::int64_t row) {
  SampleRandom random(seed, epoch, row);
  CifarDraw out;
  out.down = random.below(2 * kPad + 1);
  out.right = random.below(2 * kPad + 1);
  out.flip = random.uniform(0, 1) < 0.5;
  out.degrees = random.uniform(-15, 15);
  return out;
}

// Finds, for each output pixel, its source pixel: rotation first, then mirroring and the crop's
// offset. This is the inverse of the order in which the augmentations apply.
void cut_cifar(const std::uint8_t* planes, const CifarDraw& draw, std::uint8_t* cut) {
  constexpr double kPi = 3.14159265358979323846;
  const double angle = -draw.degrees * kPi / 180;
  const double cosine = std::cos(angle), sine = std::sin(angle), centre = kSide / 2.0;
  const double right = centre - cosine * centre - sine * centre;
  const double down = centre + sine * centre - cosine * centre;
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const std::int64_t turned_x =
          (fixed(right + (cosine + sine) * 0.5) + x * fixed(cosine) + y * fixed(sine)) >> 16;
      const std::int64_t turned_y =
          (fixed(down + (cosine - sine) * 0.5) - x * fixed(sine) + y * fixed(cosine)) >> 16;
      std::uint8_t* out = cut + y * kSide + x;
      out[0] = out[kPlane] = out[2 * kPlane] = 0;
      if (turned_x < 0 || turned_x >= kSide || turned_y < 0 || turned_y >= kSide) continue;
      const std::int64_t from_x = (draw.flip ? kSide - 1 - turned_x : turned_x) + draw.right - kPad;
      const std::int64_t from_y = turned_y + draw.down - kPad;
      if (from_x < 0 || from_x >= kSide || from_y < 0 || from_y >= kSide) continue;
      for (int channel = 0; channel < 3; ++channel) {
        out[channel * kPlane] = planes[channel * kPlane + from_y * kSide + from_x];
      }
    }
  }
}

namespace {

class Cifar final : public RowSource {
 public:
  explicit Cifar(const Cifar100Options& options)
      : options_(options),
        set_(*options.set),
        fields_({{"image", DType::Float32, {3, kSide, kSide}}, {"label", DType::Int32, {}}}) {}

  const std::vector<Field>& fields() const override { return fields_; }
  std::int64_t rows() const override { return set_.rows(); }
  bool same_everywhere() const override { return true; }
  std::string order() const override {
    return fmt::format("cifar100 rows {} {} seed {}", rows(), options_.train ? "train" : "eval",
                       options_.seed);
  }
  void read(Batch& batch) override;

 private:
  std::int64_t image_of(std::int64_t epoch, std::int64_t row);

  Cifar100Options options_;
  const Cifar100& set_;
  std::vector<Field> fields_;
  std::vector<std::int64_t> order_;  // order of epoch_
  std::int64_t epoch_ = -1;
};

std::int64_t Cifar::image_of(std::int64_t epoch, std::int64_t row) {
  if (!options_.train) return row;
  if (epoch != epoch_) {
    order_ = drawn_order(rows(), options_.seed, static_cast<std::uint64_t>(epoch), 0);
    epoch_ = epoch;
  }
  return order_[static_cast<std::size_t>(row)];
}

void Cifar::read(Batch& batch) {
  std::array<std::uint8_t, Cifar100::kBytes> cut;
  for (FieldData& field : batch.fields) {
    for (std::int64_t row = 0; row < batch.rows; ++row) {
      const std::int64_t image = image_of(batch.epoch, batch.first + row);
      if (field.name == "label") {
        field.as<std::int32_t>()[row] = set_.labels[static_cast<std::size_t>(image)];
        continue;
      }
      const CifarDraw draw =
          options_.train ? draw_cifar(options_.seed, batch.epoch, image) : CifarDraw();
      cut_cifar(set_.pixels.data() + image * Cifar100::kBytes, draw, cut.data());
      normalise(cut.data(), kPlane, kCifar100, field.as<float>() + row * Cifar100::kBytes);
    }
  }
}

}  // namespace

std::unique_ptr<RowSource> cifar100_source(const Cifar100Options& options) {
  require(options.set != nullptr, "CIFAR-100: no data set is given");
  return std::make_unique<Cifar>(options);
}

}  // namespace hetu
