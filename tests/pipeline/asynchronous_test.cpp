// Methods without a flush: orders, weight versions, memory and the steady state.
#include <gmock/gmock.h>

#include "graph/base/error.h"
#include "pipeline/generate.h"
#include "pipeline/lower.h"
#include "pipeline/simulate.h"
#include "pipeline/verify.h"

namespace hetu {
namespace {

using testing::HasSubstr;

Costs times(double forward, double backward) {
  Costs c;
  c.stages = {{.forward = forward, .input_grad = backward / 2, .weight_grad = backward / 2}};
  return c;
}

std::string row_text(const Schedule& s, int worker) {
  std::string text;
  for (const Instr& i : unroll(s.workers[worker]))
    text.append(text.empty() ? "" : " ").append(to_string(i));
  return text;
}

std::string failure(const Schedule& s) {
  try {
    verify(s);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Plan) << e.what();
    return e.what();
  }
  return "";
}

TEST(Asynchronous, EverySizeIsValidComputeOnlyAndLowered) {
  for (const char* method : {"pipedream", "pipedream-2bw", "hetpipe"}) {
    for (int p = 1; p <= 8; ++p) {
      for (const int m : {1, 2, 3, 5, 8, 17}) {
        if (std::string(method) == "pipedream-2bw" && m < p) continue;
        for (const int k : {1, 2, 3, 7}) {
          const Sizes sizes{.stages = p, .micro_batches = m, .steps = k};
          const Schedule s = generate(method, sizes);
          ASSERT_EQ(failure(s), "") << method << " " << p << " " << m << " " << k;
          ASSERT_EQ(failure(lower(s, {.pipelines = 2})), "") << method << " " << p << " " << m;
          ASSERT_EQ(failure(with_recompute(s)), "");
          ASSERT_NO_THROW(verify(lower(s), {.send_slots = 1}));
          EXPECT_EQ(s.steps, k);
        }
      }
    }
  }
}

TEST(Asynchronous, OrdersAreTheKnownOnes) {
  const Schedule pd = generate("pipedream", {.stages = 3, .micro_batches = 4});
  EXPECT_EQ(row_text(pd, 0), "0F0 0F1 0F2 0B0 0UPDATE 0F3 0B1 0UPDATE 0B2 0UPDATE 0B3 0UPDATE");
  EXPECT_EQ(row_text(pd, 2), "2F0 2B0 2UPDATE 2F1 2B1 2UPDATE 2F2 2B2 2UPDATE 2F3 2B3 2UPDATE");
  const Schedule two = generate("pipedream-2bw", {.stages = 2, .micro_batches = 2, .steps = 2});
  EXPECT_EQ(row_text(two, 0), "0F0 0F1 0B0 0F2 0B1 0UPDATE 0F3 0B2 0B3 0UPDATE");
  EXPECT_EQ(row_text(two, 1), "1F0 1B0 1F1 1B1 1UPDATE 1F2 1B2 1F3 1B3 1UPDATE");
  const Schedule wave = generate("hetpipe", {.stages = 3, .micro_batches = 2, .steps = 2});
  EXPECT_EQ(row_text(wave, 0), "0F0 0F1 0B0 0UPDATE 0F2 0B1 0UPDATE 0F3 0B2 0UPDATE 0B3 0UPDATE");
  const Schedule one = generate("hetpipe", {.stages = 3, .micro_batches = 1, .steps = 2});
  EXPECT_EQ(row_text(one, 0), "0F0 0B0 0UPDATE 0F1 0B1 0UPDATE");  // a wave of 1 is plain SGD
}

TEST(Asynchronous, VersionsAndActivationsAreThePublishedOnes) {
  for (int p = 1; p <= 9; ++p) {
    for (const int m : {1, 4, 9, 12}) {
      const Sizes sizes{.stages = p, .micro_batches = m, .steps = 20};
      const VerifyReport pd = verify(generate("pipedream", sizes));
      const VerifyReport wave = verify(generate("hetpipe", sizes));
      for (int w = 0; w < p; ++w) {
        EXPECT_EQ(pd.peak_activations[w], p - w) << p << " " << m;
        EXPECT_EQ(pd.stages[w].weight_versions, p - w) << p << " " << m;
        EXPECT_EQ(pd.stages[w].updates, 20 * m);
        EXPECT_EQ(wave.peak_activations[w], std::min(m, p - w)) << p << " " << m;
        EXPECT_EQ(wave.stages[w].weight_versions, m) << p << " " << m << " " << w;
      }
      if (m < p) continue;
      const VerifyReport two = verify(generate("pipedream-2bw", sizes));
      for (int w = 0; w < p; ++w) {
        EXPECT_EQ(two.peak_activations[w], p - w) << p << " " << m;
        EXPECT_EQ(two.stages[w].weight_versions, 2) << p << " " << m;
        EXPECT_EQ(two.stages[w].updates, 20);
      }
    }
  }
}

TEST(Asynchronous, NoBubbleOnceFilled) {
  for (const char* method : {"pipedream", "pipedream-2bw", "hetpipe"}) {
    for (int p = 1; p <= 8; ++p) {
      for (const double backward : {1.0, 2.0, 3.5}) {
        const Sizes sizes{.stages = p, .micro_batches = 8, .steps = 8};
        const Simulation run = simulate(lower(generate(method, sizes)), times(1, backward));
        EXPECT_TRUE(run.asynchronous);
        EXPECT_NEAR(run.steady_bubble, 0, 1e-12) << method << " " << p;
        EXPECT_NEAR(run.throughput, 1 / (1 + backward), 1e-12) << method << " " << p;
        EXPECT_NEAR(run.makespan, (64 + p - 1) * (1 + backward), 1e-9) << method << " " << p;
      }
    }
  }
  // A wave shorter than the pipeline leaves workers idle.
  const Sizes few{.stages = 4, .micro_batches = 2, .steps = 32};
  EXPECT_NEAR(simulate(generate("hetpipe", few), times(1, 2)).steady_bubble, 0.5, 1e-12);
}

TEST(Asynchronous, TwoVersionsNeedAsManyMicroBatchesAsStages) {
  EXPECT_THROW(generate("pipedream-2bw", {.stages = 4, .micro_batches = 3}), Error);
  // Told otherwise the verifier would find it: the weights of step t - 1 are not there in time.
  Schedule s = generate("pipedream-2bw", {.stages = 4, .micro_batches = 4, .steps = 4});
  for (Program& p : s.workers) {
    std::vector<Instr> row = unroll(p), kept;
    int backwards = 0;
    for (const Instr& i : row) {
      if (i.kind == Kind::Update) continue;
      kept.push_back(i);
      if (i.kind == Kind::Backward && ++backwards % 2 == 0)
        kept.push_back({.kind = Kind::Update, .stage = i.stage});
    }
    p = {kept, {}, 0, 0, {}};
  }
  s.micro_batches = 2;
  s.steps = 8;
  EXPECT_THAT(failure(s), HasSubstr("0F4 uses weight version 1, but only 0 update(s)"));
}

TEST(Asynchronous, ARuleFixesWhatAnUpdateApplies) {
  Schedule s = generate("pipedream", {.stages = 2, .micro_batches = 2, .steps = 3});
  s.version_rule = VersionRule::Lag1;
  EXPECT_THAT(failure(s), HasSubstr("its version rule wants one per 2 micro-batch(es)"));
  s = generate("pipedream-2bw", {.stages = 2, .micro_batches = 2, .steps = 3});
  s.version_rule = VersionRule::Wave;
  EXPECT_THAT(failure(s), HasSubstr("uses weight version 1, but only 0"));
  s.version_rule = VersionRule::Lag1;
  s.most_versions = 1;
  EXPECT_THAT(failure(s), HasSubstr("keeps 2 weight versions alive"));
  s = generate("hetpipe", {.stages = 2, .micro_batches = 4, .steps = 3});
  EXPECT_EQ(failure(s), "");
  s.most_versions = 3;
  EXPECT_THAT(failure(s), HasSubstr("keeps 4 weight versions alive"));
}

}  // namespace
}  // namespace hetu
