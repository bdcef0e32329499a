// Tests the needs of features. A table of jobs and features holds, for each pair, the refusal or
// nothing. Every refusal states the feature, what it needs, what the job has, and a remedy.
#include "executor/job/job_needs.h"

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <string>

#include "executor/job/make_plan.h"
#include "tests/executor/train_together.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT
using testing::HasSubstr;

struct JobCase {
  JobOptions options;
  OptimizerConfig optimizer = adamw();
  testing_model::Sizes model = {};
};

using Change = std::function<void(JobCase&)>;

JobCase job_of(const Change& layout, const Change& feature) {
  Setting s;
  s.stages = 2;
  JobCase job{options_of(s)};
  job.options.batch_size = job.options.micro_batches = 4;
  job.optimizer.clip_norm = 0;
  job.model.tied = false;
  layout(job);
  feature(job);
  return job;
}

// Returns the refusal of the job; empty if it is accepted.
std::string refusal(const JobCase& job) {
  const int workers = job.options.stages * job.options.pipelines;
  try {
    make_plan(language_model(job.model), job.optimizer, job.options, {0, workers});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::InvalidArgument) << e.what();
    return e.what();
  }
  return "";
}

const std::map<std::string, Change> kLayouts = {
    {"1f1b", [](JobCase&) {}},
    {"1f1b x 2", [](JobCase& j) { j.options.pipelines = 2; }},
    {"chimera", [](JobCase& j) { j.options.method = "chimera"; }},
    {"pipedream",
     [](JobCase& j) {
       j.options.method = "pipedream";
       j.options.micro_batches = 1;
     }},
    {"ps x 2",
     [](JobCase& j) {
       j.options.pipelines = 2;
       j.options.sync_method = "ps";
       j.options.servers = Servers{};
     }},
    {"averages x 2",
     [](JobCase& j) {
       j.options.method = "pipedream";
       j.options.micro_batches = 1;
       j.options.pipelines = 2;
       j.options.averaging = Averaging{};
     }},
};

struct Row {
  std::string feature;
  Change change;
  std::map<std::string, std::string> refusals;  ///< by layout; layouts that are absent accept it
};

const std::vector<Row>& rows() {
  const std::string flush = "needs a method in which all stages update once per step, but ";
  const std::string workers =
      "needs updates by the workers, but parameter servers run the optimizer (--sync-method ps). ";
  static const std::vector<Row> all = {
      {"nothing", [](JobCase&) {}, {}},
      {"--wire bf16",
       [](JobCase& j) { j.options.wire = "bf16"; },
       {{"1f1b", "needs workers that sum gradients, but each stage has one copy. Leave it out"},
        {"pipedream", "but each stage has one copy"},
        {"ps x 2", "but the pipelines share weights over servers. "},
        {"averages x 2", "but the pipelines average weights. "}}},
      {"--sums tree",
       [](JobCase& j) { j.options.sums = "tree"; },
       {{"pipedream", flush + "'pipedream' updates stage by stage. Choose a synchronous method"},
        {"averages x 2", flush}}},
      {"--sums tree with --sync-method ps",
       [](JobCase& j) {
         if (j.options.sync_method != "ps") return;
         j.options.sums = "tree";
         j.options.micro_batches = 3;
         j.options.batch_size = 6;
       },
       {{"ps x 2",
         "and 2 pipelines needs 1, 2, 4, 8, … micro-batches per pipeline, because servers get one "
         "sum from each pipeline, and --micro-batches is 3. "}}},
      {"--sums tree with --sync-method ps",
       [](JobCase& j) {
         j.options.sums = j.options.sync_method == "ps" ? "tree" : "running";
         j.optimizer.clip_norm = 1;
       },
       {{"ps x 2", "needs an optimizer without clip_norm"}}},
      {"--sums tree with --sync-method ps",
       [](JobCase& j) {
         j.options.sums = j.options.sync_method == "ps" ? "tree" : "running";
         if (j.options.sync_method == "ps") j.options.staleness = 2;
       },
       {{"ps x 2", "and with --staleness 2 each pipeline makes its own. Leave it out"}}},
      {"--sums tree with --sync-method ps",
       [](JobCase& j) {
         if (j.options.sync_method != "ps") return;
         j.options.sums = "tree";
         j.options.stages = 1;
         j.model.tied = true;
       },
       {{"ps x 2", "needs parameters with one use, because servers can't tell the gradients"}}},
      {"sum",
       [](JobCase& j) {
         j.options.sums = "tree";
         j.options.wire = "bf16";
       },
       {{"1f1b", "needs workers that sum gradients"},
        {"1f1b x 2", "--wire bf16 rounds the gradients that copies send each other"},
        {"chimera", "--wire bf16 rounds the gradients"},
        {"pipedream", flush},
        {"ps x 2", "--wire bf16"},
        {"averages x 2", flush}}},
      {"--sums tree",
       [](JobCase& j) {
         j.options.sums = "tree";
         if (j.options.method == "chimera") j.options.concat = "halving";
         j.options.micro_batches = j.options.method == "chimera" ? 2 : j.options.micro_batches;
       },
       {{"chimera", "but 'chimera' computes those of half ones"},
        {"pipedream", flush},
        {"averages x 2", flush}}},
      {"--shares",
       [](JobCase& j) {
         for (int d = 0; d < j.options.pipelines; ++d) j.options.shares.push_back(2 * d + 2);
       },
       {{"pipedream", flush + "'pipedream' updates stage by stage. Choose a synchronous method"},
        {"ps x 2", workers + "Leave --sync-method ps or --shares out"},
        {"averages x 2", flush}}},
      {"--shares",
       [](JobCase& j) {
         if (j.options.method == "1f1b") j.options.shares = {1, 2, 3};
       },
       {{"1f1b",
         "has the micro-batches of 3 pipelines, but the job has 1; give one number for each"},
        {"1f1b x 2", "but the job has 2"},
        {"ps x 2", "but the job has 2"}}},
      {"--dtype fp16-emulated",
       [](JobCase& j) { j.options.dtype = "fp16-emulated"; },
       {{"pipedream", flush + "'pipedream' updates stage by stage. Choose --dtype bf16"},
        {"ps x 2", workers + "Choose --dtype bf16"},
        {"averages x 2", flush}}},
      {"--state-dtype bf16",
       [](JobCase& j) { j.options.state_dtype = "bf16"; },
       {{"ps x 2", workers + "Servers keep states in float32."}}},
      {"--state-dtype bf16",
       [](JobCase& j) {
         j.options.state_dtype = "bf16";
         j.optimizer = sgd();
         j.optimizer.clip_norm = 0;
       },
       {{"1f1b", "needs an optimizer with states, but sgd has none. Leave --state-dtype bf16 out"},
        {"1f1b x 2", "sgd has none"},
        {"chimera", "sgd has none"},
        {"pipedream", "sgd has none"},
        {"ps x 2", "sgd has none"},
        {"averages x 2", "sgd has none"}}},
      {"--sync-method ps",
       [](JobCase& j) { j.optimizer.kind = Optimizer::Kind::Lamb; },
       {{"ps x 2",
         "needs an optimizer that takes no norm of a parameter, but lamb does. Choose "}}},
      {"--sync-method ps",
       [](JobCase& j) {
         j.optimizer = sgd();
         j.optimizer.clip_norm = 0;
         j.optimizer.lazy_rows = true;
       },
       {{"ps x 2", "needs updates of whole tables, but lazy_rows updates only rows that were "}}},
      {"share",
       [](JobCase& j) { j.model.tied = true; },
       {{"ps x 2", "--sync-method ps needs stages that share no weight, but stages 0 and 1 share "},
        {"averages x 2",
         "preduce needs stages that share no weight, but stages 0 and 1 share one. "
         "Untie it"}}},
      {"preduce",
       [](JobCase& j) {
         j.options.pipelines = 1;
         if (j.options.averaging) return;
         j.options.averaging = Averaging{};
       },
       {{"1f1b", "needs at least 2 pipelines, but the job has 1. Give devices for at least 2"},
        {"1f1b x 2", "needs at least 2 pipelines"},
        {"chimera", "needs at least 2 pipelines"},
        {"pipedream", "needs at least 2 pipelines"},
        {"ps x 2", "shares weights over servers, so its pipelines cannot average them"},
        {"averages x 2", "needs at least 2 pipelines"}}},
      {"preduce",
       [](JobCase& j) {
         j.options.pipelines = 2;
         j.options.averaging = Averaging{};
       },
       {{"1f1b",
         "needs a method whose stages update one by one, without a flush, but '1f1b' sums "},
        {"1f1b x 2", "'1f1b' sums gradients once per step. Choose a method such as pipedream"},
        {"chimera", "'chimera' sums gradients once per step"},
        {"ps x 2", "shares weights over servers, so its pipelines cannot average them"}}},
      {"--staleness 2",
       [](JobCase& j) { j.options.staleness = 2; },
       {{"1f1b", "needs pipelines that share weights over servers"},
        {"1f1b x 2", "needs pipelines that share weights over servers"},
        {"chimera", "needs pipelines that share weights over servers"},
        {"pipedream", "Leave it out for 'pipedream' on 1"},
        {"averages x 2", "needs pipelines that share weights over servers"}}},
  };
  return all;
}

TEST(JobNeeds, EveryPairOfALayoutAndAFeatureIsAcceptedOrRefusedWithItsReason) {
  int refused = 0, accepted = 0;
  for (const Row& row : rows()) {
    for (const auto& [layout, change] : kLayouts) {
      const std::string why = refusal(job_of(change, row.change));
      const auto expected = row.refusals.find(layout);
      if (expected == row.refusals.end()) {
        EXPECT_EQ(why, "") << row.feature << " on " << layout;
        ++accepted;
        continue;
      }
      EXPECT_THAT(why, HasSubstr(expected->second)) << row.feature << " on " << layout;
      if (why.find("shares weights over servers, so") == std::string::npos) {
        EXPECT_THAT(why, HasSubstr(row.feature)) << layout;
      }
      ++refused;
    }
  }
  EXPECT_GT(refused, 30);
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace hetu
