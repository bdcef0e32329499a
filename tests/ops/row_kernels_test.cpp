// Compares kernels on the touched rows of a tensor with the same operations on the whole tensor,
// bit for bit. The cases cover widths, numbers of rows, numbers of touched rows, repeated rows and
// several threads.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "ops/tensor_kernels.h"

namespace hetu {
namespace {

struct Sides {
  std::int64_t rows, width;
};
constexpr Sides kSides[] = {{1, 1}, {3, 5}, {64, 16}, {65, 16}, {1000, 17}, {5000, 3}, {9000, 16}};

// A tensor that is updated by rows, and the same tensor updated as a whole.
struct Both {
  std::vector<float> rows, dense;
  std::vector<std::uint64_t> bits;
  TouchedRows touched;

  explicit Both(const Sides& s)
      : rows(static_cast<std::size_t>(s.rows * s.width)),
        dense(rows),
        bits(static_cast<std::size_t>(TouchedRows::words_of(s.rows))),
        touched{bits.data(), s.rows, s.width} {}

  bool touches(std::int64_t row) const {
    return (bits[static_cast<std::size_t>(row / 64)] >> (row % 64) & 1) != 0;
  }
};

class RowKernels : public testing::Test {
 protected:
  const TensorKernels& kernels = cpu_tensor_kernels();
  std::mt19937_64 random{7};
  std::normal_distribution<float> normal{0, 2};

  // Adds rows to both tensors. By rows, they are scattered directly or, with `stage`, first into a
  // staged gradient that is then merged. The whole tensor gets a separate dense gradient that is
  // then added.
  void add(Both& to, Both& staged, bool stage, std::int64_t count) {
    const TouchedRows& t = to.touched;
    std::vector<std::int32_t> ids;
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto below =
          static_cast<std::uint64_t>(i % 2 == 0 ? t.rows : std::min<std::int64_t>(t.rows, 4));
      ids.push_back(static_cast<std::int32_t>(random() % below));
      for (std::int64_t k = 0; k < t.width; ++k)
        values.push_back(random() % 5 == 0 ? 0.0F : normal(random));
    }
    std::vector<float> gradient(to.dense.size());
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t k = 0; k < t.width; ++k)
        gradient[static_cast<std::size_t>(ids[static_cast<std::size_t>(i)] * t.width + k)] +=
            values[static_cast<std::size_t>(i * t.width + k)];
    kernels.add(to.dense.data(), gradient.data(), static_cast<std::int64_t>(gradient.size()));
    const RowsOf rows = {ids.data(), values.data(), count};
    if (!stage) return kernels.scatter_rows(to.rows.data(), t, rows);
    kernels.scatter_rows(staged.rows.data(), staged.touched, rows);
    kernels.merge_rows(to.rows.data(), t, staged.rows.data(), staged.touched);
    EXPECT_EQ(staged.rows, staged.dense);  // zeros
    EXPECT_EQ(std::count(staged.bits.begin(), staged.bits.end(), 0U), t.words());
  }

  void expect_touched(const Both& b) {
    for (std::int64_t row = 0; row < b.touched.rows; ++row) {
      const float* const at = b.rows.data() + row * b.touched.width;
      const bool zero = std::all_of(at, at + b.touched.width, [](float x) { return x == 0; });
      EXPECT_TRUE(zero || b.touches(row)) << "row " << row;
    }
  }
};

TEST_F(RowKernels, SumsClearsAndNormsAreThoseOfTheWholeTensor) {
  const int threads = omp_get_max_threads();
  for (const int team : {1, 3}) {
    omp_set_num_threads(team);
    for (const Sides& s : kSides) {
      Both sum(s), staged(s);
      for (int step = 0; step < 3; ++step) {
        for (const std::int64_t count : {0, 1, 40, 3000}) {
          add(sum, staged, count != 0, count);
          ASSERT_EQ(sum.rows, sum.dense) << s.rows << " x " << s.width << ", seed 7";
          expect_touched(sum);
          double by_rows = -1, whole = -2;
          kernels.sum_of_squares_rows(sum.rows.data(), sum.touched, &by_rows);
          const SquaresCall call = {sum.dense.data(), s.rows * s.width, &whole};
          kernels.sums_of_squares({&call, 1});
          EXPECT_EQ(by_rows, whole) << s.rows << " x " << s.width;
        }
        // Imitates a change of the whole tensor, such as a sum over pipelines.
        std::fill(sum.bits.begin(), sum.bits.end(), 0);
        kernels.touch_filled(sum.rows.data(), sum.touched);
        expect_touched(sum);
        kernels.clear_rows(sum.rows.data(), sum.touched);
        EXPECT_EQ(std::count(sum.rows.begin(), sum.rows.end(), 0.0F), s.rows * s.width);
        EXPECT_EQ(std::count(sum.bits.begin(), sum.bits.end(), 0U), sum.touched.words());
        std::fill(sum.dense.begin(), sum.dense.end(), 0.0F);
        add(sum, staged, false, 7 * step);  // the first gradient of a sum
      }
    }
  }
  omp_set_num_threads(threads);
}

TEST_F(RowKernels, ASweepChangesRowsWithAGradientAsTheWholeSweepDoesAndNoOthers) {
  for (const char* name : {"sgd", "momentum", "nesterov", "adagrad", "adam", "amsgrad", "adamw"}) {
    for (const Sides& s : kSides) {
      Both gradient(s), staged(s);
      add(gradient, staged, false, 30);
      const auto elements = static_cast<std::size_t>(s.rows * s.width);
      std::vector<std::vector<float>> start(4, std::vector<float>(elements));
      for (std::vector<float>& tensor : start)
        for (float& x : tensor) x = std::abs(normal(random));
      std::vector<std::vector<float>> by_rows = start, whole = start;
      SweepCall call;
      call.factor = 0.7F;
      call.rate = 0.1F;
      call.update = 3;
      call.momentum = 0.9;
      call.beta1 = 0.9;
      call.beta2 = 0.99;
      call.epsilon = 1e-8;
      call.l2 = 0.01;
      call.weight_decay = 0.1;
      const auto run = [&](std::vector<std::vector<float>>& tensors, bool rows) {
        call.weight = tensors[0].data();
        call.gradient = rows ? gradient.rows.data() : gradient.dense.data();
        for (int i = 0; i < kMostStates; ++i)
          call.state[i] = tensors[static_cast<std::size_t>(i) + 1].data();
        call.elements = s.rows * s.width;
        const Sweep sweep = kernels.sweep(name);
        if (rows)
          kernels.sweep_rows(call, gradient.touched, sweep);
        else
          sweep(call);
      };
      run(by_rows, true);
      run(whole, false);
      for (std::int64_t row = 0; row < s.rows; ++row) {
        const float* const g = gradient.dense.data() + row * s.width;
        const bool idle = std::all_of(g, g + s.width, [](float x) { return x == 0; });
        for (std::size_t t = 0; t < start.size(); ++t) {
          const auto at = static_cast<std::ptrdiff_t>(row * s.width);
          const std::vector<float>& wanted = idle ? start[t] : whole[t];
          EXPECT_TRUE(std::equal(by_rows[t].begin() + at, by_rows[t].begin() + at + s.width,
                                 wanted.begin() + at))
              << name << " " << s.rows << " x " << s.width << " row " << row << " tensor " << t;
        }
      }
    }
  }
}

// Without decay, an update of the touched rows equals the whole sweep.
TEST_F(RowKernels, PlainSgdAndAdaGradLeaveRowsWithoutAGradientAlone) {
  for (const char* name : {"sgd", "adagrad"}) {
    const Sides s{700, 13};
    Both gradient(s), staged(s);
    add(gradient, staged, false, 50);
    std::vector<float> weight(static_cast<std::size_t>(s.rows * s.width)), sum(weight);
    for (float& x : weight) x = random() % 7 == 0 ? -0.0F : normal(random);
    for (float& x : sum) x = random() % 3 == 0 ? 0.0F : std::abs(normal(random));
    std::vector<float> weight_by_rows = weight, sum_by_rows = sum;
    SweepCall call;
    call.rate = 0.1F;
    call.factor = 0.3F;
    call.epsilon = 1e-10;
    call.elements = s.rows * s.width;
    call.weight = weight.data();
    call.state[0] = sum.data();
    call.gradient = gradient.dense.data();
    kernels.sweep(name)(call);
    call.weight = weight_by_rows.data();
    call.state[0] = sum_by_rows.data();
    call.gradient = gradient.rows.data();
    kernels.sweep_rows(call, gradient.touched, kernels.sweep(name));
    EXPECT_EQ(std::memcmp(weight.data(), weight_by_rows.data(), weight.size() * 4), 0) << name;
    EXPECT_EQ(std::memcmp(sum.data(), sum_by_rows.data(), sum.size() * 4), 0) << name;
  }
}

}  // namespace
}  // namespace hetu
