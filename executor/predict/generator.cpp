// A generator has one or two graphs with the same weights. Graph `one` takes one token per row and
// call, and graph `several` (the variant "prompt") takes `count` tokens. Both keep the keys and
// values of earlier tokens as fields "keys.N" and "values.N", which Predictor::keep extends in
// place. With a prompt of 10 tokens, count = 4 and 3 tokens to generate, the calls are
//
//   several   tokens 0-3, 4-7           then `one` takes over the keys and values
//   one       tokens 8, 9, 10, 11       the outputs of 9, 10 and 11 are the new tokens
#include "executor/predict/generator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "executor/device/fork_gate.h"
#include "executor/predict/saved_model.h"

namespace hetu {
// The namespace is named because GCC warns of anonymous types in a class in a unity build.
inline namespace generator_parts {

constexpr const char* kPrompt = "prompt";  // name of the variant that takes several tokens at once

const Shape* shape_of(const Graph& graph, const std::string& field) {
  for (const ValueId v : graph.placeholders)
    if (graph.producer(v).name == field) return &graph.values[v].type.shape;
  return nullptr;
}

// Tokens [count, length], of which the first `given` of each row are set.
struct Rows {
  std::int32_t* ids;
  std::int64_t count, length, given;
};

// A model that takes a fixed number of tokens per row and call, and keeps the keys and values of
// earlier tokens.
class Steps {
 public:
  Steps(SavedModel saved, const std::string& folder, const PredictorOptions& options)
      : model_(std::move(saved), options) {
    const Shape* const ids = shape_of(model_.graph(), "ids");
    const Shape* const keys = shape_of(model_.graph(), "keys.0");
    for (const auto& [name, value] : model_.graph().fetches)
      if (name == "logits") words_ = model_.graph().values[value].type.shape.back();
    require(ids != nullptr && keys != nullptr && words_ > 0,
            "{}: the model in this folder was not saved by save_generator", folder);
    count_ = (*ids)[1];
    length_ = (*keys)[1];
    for (const ValueId v : model_.graph().placeholders) {
      const std::string name = model_.graph().producer(v).name;
      if (name.rfind("keys.", 0) == 0 || name.rfind("values.", 0) == 0)
        model_.keep("new_" + name, name);
    }
  }

  std::int64_t count() const { return count_; }
  std::int64_t length() const { return length_; }
  std::int64_t words() const { return words_; }
  std::int64_t rows() const { return model_.rows(); }
  void reset() { model_.reset(); }
  void take(const Steps& other) { model_.take(other.model_); }

  // Returns float32 logits [rows, count, words] of the tokens from `at` on. Earlier tokens must be
  // kept.
  Array logits(const Rows& of, std::int64_t at) {
    const std::int64_t rows = of.count;
    new_.resize(rows * count_);
    places_.resize(rows * count_);
    seen_.assign(rows * (length_ + count_), 0);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t t = 0; t < count_; ++t) {
        new_[r * count_ + t] = of.ids[r * of.length + at + t];
        places_[r * count_ + t] = static_cast<std::int32_t>(at + t);
      }
      std::int32_t* const seen = &seen_[r * (length_ + count_)];
      std::fill_n(seen, at, 1);
      std::fill_n(seen + length_, count_, 1);
    }
    const auto view = [rows](const std::vector<std::int32_t>& all) {
      return ArrayView{
          DType::Int32, {rows, static_cast<std::int64_t>(all.size()) / rows}, all.data()};
    };
    return std::move(
        model_.predict({{"ids", view(new_)}, {"place", view(places_)}, {"seen", view(seen_)}})
            .at("logits"));
  }

 private:
  Predictor model_;
  std::int64_t count_ = 0, length_ = 0, words_ = 0;
  std::vector<std::int32_t> new_, places_, seen_;
};

// Returns the likeliest token, or a sampled one. Sampling adds Gumbel noise to the scaled logits:
// the index of the largest sum is distributed as softmax(logits / temperature).
std::int32_t next_of(const float* logits, std::int64_t words, double temperature,
                     std::mt19937_64& random) {
  std::int32_t best = -1;
  double most = 0;
  for (std::int64_t w = 0; w < words; ++w) {
    double score = logits[w];
    if (temperature > 0) {
      const double uniform = (static_cast<double>(random() >> 11U) + 0.5) * 0x1p-53;
      score = score / temperature - std::log(-std::log(uniform));
    }
    require(!std::isnan(score), "the model's logit of token {} is NaN", w);
    if (best < 0 || score > most) {
      most = score;
      best = static_cast<std::int32_t>(w);
    }
  }
  return best;
}

}  // namespace generator_parts

struct Generator::Impl {
  Impl(const std::string& folder, const PredictorOptions& options)
      : Impl(read_model(folder), folder, options) {}

  // Both graphs come from one manifest, so that a concurrent save can't mix two models.
  Impl(const SavedModel& saved, const std::string& folder, const PredictorOptions& options)
      : one({saved.graph, {}, saved.rows, saved.weights}, folder, options) {
    if (const auto prompt = saved.variants.find(kPrompt); prompt != saved.variants.end()) {
      several = std::make_unique<Steps>(SavedModel{prompt->second, {}, saved.rows, saved.weights},
                                        folder, options);
    }
  }

  void go_on(const Rows& rows, double temperature, std::mt19937_64& random) {
    one.reset();
    std::int64_t at = 0;
    const auto step = [&](Steps& model) {
      const Array logits = model.logits(rows, at);
      at += model.count();
      if (at >= rows.given) store(logits, rows, at, temperature, random);
    };
    if (several != nullptr && rows.given >= several->count()) {
      several->reset();
      while (rows.given - at >= several->count()) step(*several);
      one.take(*several);
    }
    while (at + 1 < rows.length) step(one);
  }

  // Sets the token at position `at` of each row.
  void store(const Array& logits, const Rows& rows, std::int64_t at, double temperature,
             std::mt19937_64& random) const {
    const std::int64_t count = logits.shape[1];
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const float* const last = logits.as<float>() + ((r + 1) * count - 1) * one.words();
      rows.ids[r * rows.length + at] = next_of(last, one.words(), temperature, random);
    }
  }

  std::mutex mutex;  // held during a call, because a text depends on the kept state
  Steps one;
  std::unique_ptr<Steps> several;
};

Generator::Generator(const std::string& folder, const PredictorOptions& options)
    : impl_(std::make_unique<Impl>(folder, options)) {}

Generator::~Generator() = default;

std::int64_t Generator::length() const { return impl_->one.length(); }

std::int64_t Generator::prompt() const {
  return impl_->several == nullptr ? 1 : impl_->several->count();
}

std::int64_t Generator::words() const { return impl_->one.words(); }

Array Generator::generate(const ArrayView& ids, const GenerateOptions& options) {
  require(
      ids.dtype == DType::Int32 && ids.shape.size() == 2 && ids.shape[0] > 0 && ids.shape[1] > 0,
      "ids must be int32 [B, T], got {}", to_string(TensorType{ids.dtype, ids.shape}));
  const std::int64_t rows = ids.shape[0];
  const std::int64_t given = ids.shape[1];
  const std::int64_t all = given + options.tokens;
  require(options.tokens >= 1 && all <= length(),
          "{} tokens and {} new ones do not fit in {} (length= of save_generator)", given,
          options.tokens, length());
  require(options.temperature >= 0 && std::isfinite(options.temperature),
          "temperature must be finite and at least 0, got {}", options.temperature);
  const auto* const from = static_cast<const std::int32_t*>(ids.data);
  for (std::int64_t i = 0; i < rows * given; ++i) {
    require(from[i] >= 0 && from[i] < words(),
            "row {} has token {} at position {}; the model knows tokens 0 to {}", i / given,
            from[i], i % given, words() - 1);
  }
  Array out{DType::Int32, {rows, all}, std::vector<std::byte>(rows * all * sizeof(std::int32_t))};
  auto* const to = reinterpret_cast<std::int32_t*>(out.bytes.data());
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * all, from + r * given, given * sizeof(std::int32_t));
  const NoFork whole;
  const std::lock_guard lock(impl_->mutex);
  std::mt19937_64 random(options.seed);
  for (std::int64_t first = 0; first < rows; first += impl_->one.rows()) {
    impl_->go_on({to + first * all, std::min(impl_->one.rows(), rows - first), all, given},
                 options.temperature, random);
  }
  return out;
}

}  // namespace hetu
