// A reference for sparse tables: a worker that holds the whole table in memory. Used by the tests
// of ps/server.
#pragma once
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ops/initialize.h"
#include "ps/client/parameter_client.h"
#include "tests/ps/server/whole_sweep.h"

namespace hetu::ps {

/// Rows that are updated one by one with the workers' sweep.
class WholeRows {
 public:
  explicit WholeRows(const SparseTable& about)
      : about_(about), width_(static_cast<std::size_t>(about.width)) {
    const int states = about.optimizer ? optimizer_states(about.optimizer->settings.kind) : 0;
    const auto elements = static_cast<std::size_t>(about.rows) * width_;
    planes_.resize(1 + static_cast<std::size_t>(states), std::vector<float>(elements));
    initialize(about.first.values, about.name, {about.rows, about.width}, about.first.seed,
               planes_[0].data());
  }

  /// Applies one update with the rows of all elements of `all`, in that order.
  void apply(const std::vector<Rows>& all, double rate, double factor = 1) {
    ++updates_;
    std::map<std::int64_t, std::vector<float>> sums;
    for (const Rows& rows : all) {
      std::map<std::int64_t, std::vector<float>> of_one;  // a worker merges its own rows first
      for (std::size_t i = 0; i < rows.ids.size(); ++i)
        add(of_one, rows.ids[i], &rows.values[i * width_]);
      for (const auto& [id, sum] : of_one) add(sums, id, sum.data());
    }
    for (auto& [id, sum] : sums) change(id, sum, rate, factor);
  }

  const float* row(std::int64_t id, std::size_t plane = 0) const {
    return planes_[plane].data() + static_cast<std::size_t>(id) * width_;
  }
  const std::vector<float>& values() const { return planes_[0]; }
  std::vector<std::vector<float>> states() const { return {planes_.begin() + 1, planes_.end()}; }
  std::int64_t updates() const { return updates_; }

 private:
  void add(std::map<std::int64_t, std::vector<float>>& sums, std::int64_t id, const float* vector) {
    const auto [found, is_new] = sums.try_emplace(id, vector, vector + width_);
    for (std::size_t k = 0; !is_new && k < width_; ++k) found->second[k] += vector[k];
  }
  void change(std::int64_t id, std::vector<float>& gradient, double rate, double factor) {
    const auto at = static_cast<std::size_t>(id) * width_;
    const TensorKernels& kernels = cpu_tensor_kernels();
    if (!about_.optimizer) {
      kernels.scale(gradient.data(), static_cast<float>(factor), about_.width);
      return kernels.add(planes_[0].data() + at, gradient.data(), about_.width);
    }
    SweepCall call = sweep_call(about_.optimizer->settings, rate, factor, updates_);
    call.weight = planes_[0].data() + at;
    call.gradient = gradient.data();
    for (std::size_t p = 1; p < planes_.size(); ++p) call.state[p - 1] = planes_[p].data() + at;
    call.elements = about_.width;
    kernels.sweep(optimizer_name(about_.optimizer->settings.kind))(call);
  }

  const SparseTable about_;
  const std::size_t width_;
  std::vector<std::vector<float>> planes_;
  std::int64_t updates_ = 0;
};

/// Returns random rows in any order, some of them several times. Sometimes there are none.
inline Rows random_rows(const SparseTable& about, int most, std::mt19937& draw) {
  Rows rows;
  for (unsigned n = draw() % static_cast<unsigned>(most + 1); n > 0; --n) {
    rows.ids.push_back(static_cast<std::int64_t>(draw() % static_cast<unsigned>(about.rows)));
    if (draw() % 3 == 0) rows.ids.back() = rows.ids.front();
  }
  rows.values = random_values(static_cast<std::int64_t>(rows.ids.size()) * about.width, draw);
  return rows;
}

}  // namespace hetu::ps
