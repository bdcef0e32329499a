#include <gmock/gmock.h>

#include <bit>
#include <cmath>

#include "base/bfloat16.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/float16.h"
#include "base/limits.h"
#include "base/shape.h"
#include "base/trace.h"
#include "base/words.h"

namespace hetu {
namespace {

TEST(Error, CarriesItsCodeAndMessage) {
  EXPECT_THAT([] { require(false, "got {}, wanted {}", 3, 4); },
              testing::ThrowsMessage<Error>("got 3, wanted 4"));
  EXPECT_EQ(exit_status(Code::Plan), 1);
  EXPECT_EQ(exit_status(Code::Config), 2);
}

TEST(Shape, BindsMultiplesOfTheBatch) {
  const Shape rows = {-128, 768};
  EXPECT_EQ(to_string(rows), "[128B, 768]");
  EXPECT_TRUE(is_symbolic(rows));
  EXPECT_EQ(bind_batch(rows, 4), (Shape{512, 768}));
  EXPECT_EQ(element_count(bind_batch(rows, 4)), 512 * 768);
  EXPECT_THROW(element_count(rows), Error);
  EXPECT_THROW(element_count({std::int64_t{1} << 40, std::int64_t{1} << 40}), Error);
  EXPECT_EQ(element_count({}), 1);
}

TEST(Shape, HasABoundedSize) {
  const std::int64_t most = kMostElements;
  for (const Shape& shape : {Shape{}, {0}, {most}, {-most}, {0, most}, {1 << 22, -(1 << 22)}}) {
    EXPECT_TRUE(is_size(shape)) << to_string(shape);
    EXPECT_NO_THROW(element_count(bind_batch(shape, 1)));
  }
  for (const Shape& shape : {Shape{most + 1},
                             {-most - 1},
                             {most, 2},
                             {0, INT64_MAX},
                             {INT64_MIN},
                             {1LL << 32, 1LL << 32},
                             {2, 0, most}})
    EXPECT_FALSE(is_size(shape)) << to_string(shape);
  EXPECT_THROW(bind_batch({-most}, 2), Error);
  EXPECT_THROW(bind_batch({INT64_MIN}, 1), Error);
}

TEST(DType, NamesRoundTrip) {
  for (const DType t : {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                        DType::Int32, DType::Int64, DType::Int8, DType::Bool}) {
    EXPECT_EQ(parse_dtype(dtype_name(t)), t);
  }
  EXPECT_THROW(parse_dtype("float"), Error);
}

TEST(MemoryText, IsInMiBAndExact) {
  EXPECT_EQ(memory_text(0), "0.0 MiB (0 bytes)");
  EXPECT_EQ(memory_text(3 << 19), "1.5 MiB (1572864 bytes)");
  EXPECT_EQ(memory_text(std::int64_t{1} << 40), "1048576.0 MiB (1099511627776 bytes)");
}

// Covers every bfloat16, and float32 numbers at, near and halfway between two of them. A float32
// rounds to the nearest bfloat16, and to the even one from the middle.
TEST(BFloat16, RoundsToTheNearestEven) {
  for (std::uint32_t upper = 0; upper < 1U << 16; ++upper) {
    const auto exact = std::bit_cast<BFloat16>(static_cast<std::uint16_t>(upper));
    const float low = exact;
    if (std::isnan(low)) {
      EXPECT_TRUE(std::isnan(float(BFloat16(low)))) << upper;
      continue;
    }
    EXPECT_EQ(BFloat16(low).bits, upper);
    if (std::isinf(low)) continue;
    // away from 0; the last one is infinity
    const auto next = static_cast<std::uint16_t>(upper + 1);
    for (const std::uint32_t below : {0x1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      const bool up = below > 0x8000U || (below == 0x8000U && (upper & 1U) != 0);
      EXPECT_EQ(BFloat16(std::bit_cast<float>(upper << 16 | below)).bits, up ? next : upper);
    }
  }
  // A NaN whose payload lies in the lower half must not become infinite.
  EXPECT_TRUE(std::isnan(float(BFloat16(std::bit_cast<float>(0x7f800001U)))));
}

// Covers every float16, and float32 numbers at, near and halfway between two of them.
TEST(Float16, RoundsToTheNearestEven) {
  for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
    const auto exact = std::bit_cast<Float16>(static_cast<std::uint16_t>(bits));
    const float low = exact;
    const std::uint32_t magnitude = bits & 0x7fffU;
    if (magnitude > 0x7c00U) {
      EXPECT_TRUE(std::isnan(low) && std::isnan(float(Float16(low)))) << bits;
      continue;
    }
    EXPECT_EQ(Float16(low).bits, bits);
    if (magnitude == 0x7c00U) {
      EXPECT_TRUE(std::isinf(low));
      continue;
    }
    // By definition, the step is 2^-24 below 2^-14, and 2^-10 of the power of two above.
    const std::uint32_t exponent = magnitude >> 10;
    const double value = exponent == 0
                             ? std::ldexp(magnitude, -24)
                             : std::ldexp((magnitude & 0x3ffU) + 1024, int(exponent) - 25);
    EXPECT_EQ(std::fabs(low), value) << bits;
    // away from 0; the last one is infinity
    const auto next = static_cast<std::uint16_t>(bits + 1);
    const double step = std::ldexp(1.0, int(std::max(exponent, 1U)) - 25);
    const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
    const auto rounded = [&](double part) {
      return Float16(static_cast<float>(sign * (value + part * step))).bits;
    };
    EXPECT_EQ(rounded(0.5), (bits & 1U) != 0 ? next : bits) << bits;
    EXPECT_EQ(rounded(0.5 - 1.0 / 4096), bits);
    EXPECT_EQ(rounded(0.5 + 1.0 / 4096), next);
  }
  EXPECT_TRUE(std::isnan(float(Float16(std::bit_cast<float>(0x7f800001U)))));
  EXPECT_TRUE(std::isinf(float(Float16(1e30F))));
}

TEST(Trace, JsonRoundTrips) {
  Trace trace;
  trace.events.push_back({TraceSource::Measured, 2, "F", 1, 7, 0, 3, 12.5, 4.25});
  trace.events.push_back({TraceSource::Predicted, 0, "UPDATE", 0, -1, 0, 3, 1, 2});
  trace.metadata_json = R"({"plan":"x"})";
  const Trace back = trace_from_json(trace_to_json(trace), "test");
  ASSERT_EQ(back.events.size(), 2U);
  EXPECT_EQ(back.events[0].kind, "F");
  EXPECT_EQ(back.events[0].micro, 7);
  EXPECT_EQ(back.events[0].source, TraceSource::Measured);
  EXPECT_DOUBLE_EQ(back.events[0].duration_us, 4.25);
  EXPECT_EQ(back.metadata_json, trace.metadata_json);
  EXPECT_THROW(trace_from_json("{", "test"), Error);
}

}  // namespace
}  // namespace hetu
