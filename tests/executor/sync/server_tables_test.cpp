// Tests embedding tables on parameter servers. Without a cache, and with a cache whose bounds are
// 0, training has the bits of tables on workers. Options that don't combine with such tables are
// refused.
#include <gmock/gmock.h>

#include "executor/job/job_check.h"
#include "ps/client/local_servers.h"
#include "tests/executor/train_together.h"

namespace hetu {
namespace {

using namespace testing_model;  // NOLINT
using Kind = OptimizerConfig::Kind;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

OptimizerConfig optimizer(Kind kind, double l2 = 0) {
  OptimizerConfig c = defaults_of(kind);
  c.rate = {LearningRate::Kind::Constant, kind == Kind::Sgd ? 0.5 : 0.02, 3};
  c.clip_norm = 0;
  if (kind == Kind::AdamW)
    c.weight_decay = l2;
  else
    c.l2 = l2;
  c.lazy_rows = true;  // servers always update rows lazily
  return c;
}

// Uses a table with more rows than a step looks up.
Setting setting(Kind kind = Kind::AdaGrad) {
  Setting s;
  s.model.tied = false;
  s.model.vocabulary = 333;
  s.model.width = 12;
  s.steps = 6;
  s.optimizer = optimizer(kind);
  return s;
}

Outcome train_served(Setting s, int servers, const ps::CacheOptions& cache = {},
                     const std::string& sums = "running") {
  ps::LocalServers local(servers);
  s.model.served = true;
  s.configure = [&local, cache, sums](JobOptions& o) {
    o.sums = sums;
    o.servers.emplace();
    o.servers->connect = [&local](const ps::ParameterOptions& p) { return local.client(p); };
    o.cache = cache;
  };
  return train(s);
}

// The norms cover only tensors that lie on workers, so they are not compared.
void expect_the_bits_of_workers(const Setting& s, int servers, const ps::CacheOptions& cache,
                                const std::string& where) {
  Outcome on_workers = train(s), served = train_served(s, servers, cache);
  served.norms = on_workers.norms;
  expect_equal(served, on_workers, true, false, where);
}

TEST(ServerTables, EveryOptimizerHasTheBitsOfTablesOnWorkers) {
  for (const Kind kind : {Kind::Sgd, Kind::Momentum, Kind::Nesterov, Kind::AdaGrad, Kind::Adam,
                          Kind::AmsGrad, Kind::AdamW}) {
    for (const double l2 : {0.0, 0.01}) {
      for (const int rows : {333, 7}) {
        Setting s = setting(kind);
        s.optimizer = optimizer(kind, l2);
        s.model.vocabulary = rows;
        expect_the_bits_of_workers(s, 2, {},
                                   fmt::format("{} l2 {} {} rows", optimizer_name(kind), l2, rows));
      }
    }
  }
}

TEST(ServerTables, EveryPlanHasTheBitsOfTablesOnWorkers) {
  struct Case {
    const char* method;
    int stages, pipelines, micros;
  };
  for (const Case& c :
       {Case{"gpipe", 4, 1, 4}, Case{"1f1b", 2, 2, 4}, Case{"zb-h1", 3, 1, 4},
        Case{"1f1b", 1, 3, 2}, Case{"gpipe", 2, 2, 1}, Case{"dp", 1, 2, 4},
        Case{"interleaved-1f1b", 2, 1, 4}, Case{"varuna", 2, 2, 4}, Case{"zb-v", 2, 2, 4}}) {
    for (const char* device : {"cpu", "far"}) {
      Setting s = setting(Kind::Adam);
      s.method = c.method;
      s.stages = c.stages;
      s.pipelines = c.pipelines;
      s.micro_batches = c.micros;
      s.device = device;
      expect_the_bits_of_workers(s, 3, {},
                                 fmt::format("{} {} x {}, {} micros on {}", c.method, c.pipelines,
                                             c.stages, c.micros, device));
    }
  }
}

TEST(ServerTables, CachesWithBoundsOfZeroHaveTheBitsOfTablesOnWorkers) {
  for (const auto policy : {ps::CachePolicy::Lru, ps::CachePolicy::Lfu, ps::CachePolicy::LfuOpt}) {
    for (const std::int64_t capacity : {1, 20, 1000}) {
      for (const int pipelines : {1, 2}) {
        Setting s = setting();
        s.pipelines = pipelines;
        s.model.vocabulary = 60;
        s.steps = 12;
        expect_the_bits_of_workers(s, 2, {.policy = policy, .capacity = capacity},
                                   fmt::format("{} {} rows, {} pipelines",
                                               ps::cache_policy_name(policy), capacity, pipelines));
      }
    }
  }
}

// With --sums tree, four pipelines have the bits of one.
TEST(ServerTables, InATreeEveryLayoutHasTheBitsOfOneProcess) {
  Setting one = setting(Kind::Adam);
  one.optimizer.lazy_rows = false;  // it would apply to tables on workers only
  one.model.vocabulary = 40;        // most pipelines look up most rows
  one.stages = one.pipelines = 1;
  one.micro_batches = 8;
  one.batch_size = 16;
  const Outcome want = train_served(one, 1, {}, "tree");
  for (const auto& [pipelines, stages] : {std::pair{2, 2}, {4, 1}}) {
    Setting s = one;
    s.pipelines = pipelines;
    s.stages = stages;
    s.micro_batches /= pipelines;
    s.batch_size /= pipelines;
    Outcome got = train_served(s, 2, {.policy = ps::CachePolicy::Lru, .capacity = 20}, "tree");
    got.norms = want.norms;
    expect_equal(got, want, true, false, fmt::format("{} x {}", pipelines, stages));
  }
}

TEST(ServerTables, WithBoundsTheyLearnAndSendLess) {
  Setting s = setting(Kind::Sgd);
  s.model.vocabulary = 60;
  s.pipelines = 2;
  s.steps = 30;
  const Outcome exact = train_served(s, 1);
  const Outcome bounded = train_served(s, 1, {.capacity = 60, .pull_bound = 4, .push_bound = 4});
  EXPECT_NE(bounded.weights.at("embedding"), exact.weights.at("embedding"));
  const auto late = [](const Outcome& o) {
    double sum = 0;
    for (std::size_t i = o.losses.size() - 5; i < o.losses.size(); ++i) sum += o.losses[i] / 5;
    return sum;
  };
  EXPECT_NEAR(late(bounded), late(exact), 0.05 * late(exact));
}

void expect_refused(const Setting& s, const std::string& words) {
  const auto check = [&] {
    Setting served = s;
    served.model.served = true;
    served.configure = [&s](JobOptions& o) {
      o.servers.emplace();
      s.configure(o);
    };
    check_job(language_model(served.model), served.optimizer, options_of(served));
  };
  EXPECT_THAT(check, ThrowsMessage<Error>(HasSubstr(words)));
}

TEST(ServerTables, WhatDoesNotGoWithThemIsRefused) {
  Setting s = setting();
  s.model.tied = true;
  expect_refused(s, "so it must be read by one embedding and nothing else; it is read by");
  s = setting();
  s.method = "pipedream";
  s.stages = 2;
  s.micro_batches = 1;
  expect_refused(s,
                 "table 'embedding' on parameter servers needs a method in which all stages update "
                 "once per step, but 'pipedream' updates stage by stage");
  s = setting();
  s.method = "chimera";
  s.stages = 2;
  expect_refused(s, "'chimera' has copies");
  s = setting();
  s.optimizer.lazy_rows = false;
  s.configure = [](JobOptions& o) { o.sync_method = "ps"; };
  expect_refused(
      s, "parameter servers run the optimizer (--sync-method ps). Leave --sync-method ps out");
  s = setting(Kind::Lamb);
  s.optimizer.lazy_rows = false;
  s.optimizer.clip_norm = 0;
  s.optimizer.l2 = 0;
  expect_refused(s, "needs an optimizer that takes no norm of a parameter, but lamb does");
  s = setting();
  s.optimizer.clip_norm = 1;
  expect_refused(s, "needs an optimizer without clip_norm, but it is 1. Leave clip_norm out");
  s = setting();
  s.configure = [](JobOptions& o) { o.state_dtype = "bf16"; };
  expect_refused(
      s,
      "--state-dtype bf16 needs embedding tables on the workers, but table 'embedding' is "
      "on parameter servers");
  s = setting();
  s.configure = [](JobOptions& o) {
    o.cache.capacity = 5;
    o.cache.push_bound = 3;
  };
  expect_refused(s, "--push-bound 3: workers then update their cached rows of 'embedding'");
  s.configure = [](JobOptions& o) { o.cache.pull_bound = 3; };
  expect_refused(s, "--pull-bound needs a cache of rows: give --cache-rows N");
  s.configure = [](JobOptions& o) { o.cache.policy = ps::CachePolicy::Lfu; };
  expect_refused(s, "--cache-policy needs a cache of rows");
  s = setting();
  s.configure = [](JobOptions& o) { o.servers.reset(); };
  expect_refused(s, "start it with heturun");
  s = setting();
  s.configure = [](JobOptions& o) { o.cache.capacity = 3; };
  EXPECT_THAT([&] { check_job(language_model(s.model), s.optimizer, options_of(s)); },
              ThrowsMessage<Error>(HasSubstr("--cache-rows needs a model with embedding tables")));
}

TEST(ServerTables, ARowThatTheTableHasNotIsNamed) {
  ps::LocalServers local(1);
  Setting s = setting();
  s.model.served = true;
  s.configure = [&local](JobOptions& o) {
    o.servers.emplace();
    o.servers->connect = [&local](const ps::ParameterOptions& p) { return local.client(p); };
  };
  const auto work = [&](comm::Transport& links) {
    Job job(language_model(s.model), s.optimizer, options_of(s), links);
    {
      const std::int32_t wrong = 333;
      Tokens batch = batch_of(s, 0);
      batch.ids[3] = wrong;
      EXPECT_THAT([&] { job.train(part_of(s, batch, 0)); },
                  ThrowsMessage<Error>(HasSubstr(fmt::format(
                      "field 'ids' requests row {} of table 'embedding', which has rows 0 to 332",
                      wrong))));
    }
  };
  EXPECT_EQ(on_worker_threads(1, work), "");
}

}  // namespace
}  // namespace hetu
