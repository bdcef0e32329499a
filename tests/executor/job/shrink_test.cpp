// Tests pipelines that average their weights and die one by one, at any moment. The survivors
// finish with one state and report the losses, and one of them does the work that is done once per
// job.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/machine_memory.h"
#include "executor/job/job.h"
#include "executor/job/job_check.h"
#include "net/transport/inproc.h"
#include "ps/coordinator/local_coordinator.h"
#include "ps/coordinator/serve.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/test_options.h"
#include "tests/temporary_folder.h"

namespace hetu {
namespace {

using testing_model::Tokens;

constexpr int kRows = 2;
constexpr int kUpdates = 12;

struct Case {
  groups::Options policy;
  int pipelines = 3;
  int stages = 2;
  int runs = 3;
  int updates = kUpdates;  // of each run
  bool asks = false;       // one worker asks all to stop early
  std::set<int> dies = {1};
  int after_batches = 1;     // batches of all pipelines together before the first death
  double after_ms = 0;       // delay before the first death, and between deaths
  bool dies_saving = false;  // dies while it does the work of one pipeline for all
  std::int64_t rows = kRows;
  bool refused = false;  // all workers must be refused at their start
};

testing_model::Sizes model() {
  testing_model::Sizes s;
  s.tied = false;
  return s;
}

// A job with threads as workers, a transport per pipeline, and a mesh per stage.
class ShrinkingJob {
 public:
  explicit ShrinkingJob(const Case& c)
      : case_(c), keys_(curve::make_key_pair()), saved_(c.pipelines, 0) {
    comm::Options links;
    links.timeout_s = 60;
    for (int d = 0; d < c.pipelines; ++d) links_.push_back(comm::make_inproc(c.stages, links));
  }

  void run() {
    std::vector<std::thread> workers;
    for (int d = 0; d < case_.pipelines; ++d) {
      for (int s = 0; s < case_.stages; ++s) {
        workers.emplace_back([this, d, s] {
          guarded(d, s);
          ++ended_;
        });
      }
    }
    if (!case_.dies_saving) {
      const int all = case_.pipelines * case_.stages;
      while (!case_.dies.empty() && batches_ < case_.after_batches && ended_ < all)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      for (const int d : case_.dies) {
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(case_.after_ms));
        kill(d);
      }
    }
    for (std::thread& w : workers) w.join();
  }

  void kill(int pipeline) {
    dead_[pipeline] = true;
    coordinator_.lose(pipeline, "was killed");
    for (const auto& link : links_[pipeline]) link->abort(1, "was killed");
  }

  std::map<std::string, std::vector<float>> tensors;
  std::map<int, int> finished;  // by pipeline: workers that reached the end
  std::map<int, std::vector<double>> losses;
  std::vector<ps::Lost> lost;
  std::set<std::int64_t> steps;  // steps at which workers ended
  std::multiset<std::string> refusals;
  std::int64_t averages = 0;  // planned bytes for averages
  std::vector<int> saved() const { return saved_; }

 private:
  void guarded(int pipeline, int stage) {
    try {
      work(pipeline, stage);
    } catch (const std::exception& e) {
      if (case_.refused) {
        const std::lock_guard lock(mutex_);
        refusals.insert(e.what());
        return;
      }
      EXPECT_TRUE(dead_[pipeline]) << "pipeline " << pipeline << " lives, but: " << e.what();
    }
  }

  JobOptions options(int pipeline) {
    Averaging how;
    how.policy = case_.policy;
    how.connect = [&](const ps::ClientOptions& c) { return coordinator_.client(c); };
    comm::MeshAddress address;
    address.endpoint = fmt::format("ipc://{}/{}", folder_.path(), ++endpoint_);
    address.public_key = keys_.public_key;
    address.secret_key = keys_.secret_key;
    how.apart = Apart{pipeline, address};
    JobOptions o = test_options();
    o.method = "pipedream";
    o.pipelines = case_.pipelines;
    o.stages = case_.stages;
    o.batch_size = case_.rows;
    o.seed = 11;
    o.threads = 1;
    o.averaging = how;
    return o;
  }

  void work(int pipeline, int stage) {
    OptimizerConfig optimizer;
    optimizer.kind = OptimizerConfig::Kind::Momentum;
    optimizer.rate.base = 0.02;
    Job trainer(testing_model::language_model(model()), optimizer, options(pipeline),
                *links_[pipeline][stage]);
    int number = 0;
    DrawnBatches source([&] {
      ++batches_;
      const auto rows = static_cast<int>(case_.rows);
      return rows_of(testing_model::tokens(model(), rows, number++ * 16 + pipeline), model().length,
                     0, rows);
    });
    std::vector<double> own;
    for (int r = 0; r < case_.runs; ++r) {
      trainer.begin_run(case_.updates);
      while (const auto result = trainer.next(&source)) {
        own.push_back(result->at("loss"));
        if (case_.asks && pipeline == 1 && stage == 0 && own.size() > 10) trainer.ask_to_stop();
        if (result->last) {
          EXPECT_EQ(result->stop_asked, case_.asks);
        }
      }
      once(trainer, pipeline, stage);
    }
    const std::lock_guard lock(mutex_);
    if (dead_[pipeline]) return;
    ++finished[pipeline];
    if (stage == 0) losses[pipeline] = own;
    lost = trainer.membership()->losses();
    averages = trainer.plan().memory.stages.front().second.averages;
    steps.insert(trainer.step());
    for (const StateTensor& t : trainer.state()) {
      const std::vector<float> values = t.values.values();
      const auto [at, fresh] = tensors.emplace(t.name + "/" + t.state, values);
      EXPECT_TRUE(fresh || at->second == values) << t.name << " differs between pipelines";
    }
  }

  // Imitates a checkpoint: all pipelines exchange texts, then the workers of one pipeline write
  // together.
  void once(Job& trainer, int pipeline, int stage) {
    const auto texts = trainer.membership()->exchange(std::to_string(pipeline * 100 + stage));
    EXPECT_EQ(texts.count(pipeline), 1U);
    for (const auto& [d, text] : texts) EXPECT_EQ(text, std::to_string(d * 100 + stage));
    trainer.membership()->in_one_pipeline([&] {
      EXPECT_TRUE(trainer.in_first_pipeline());
      if (case_.dies_saving && case_.dies.count(pipeline) > 0 && !dead_[pipeline].exchange(true)) {
        kill(pipeline);
      }
      comm::barrier(*links_[pipeline][stage], comm::everyone(*links_[pipeline][stage]),
                    {comm::make_tag(1, 0, 0, 0, 0), "a save"});
      if (stage == 0) {
        const std::lock_guard lock(mutex_);
        ++saved_[pipeline];
      }
    });
  }

  const Case case_;
  const curve::KeyPair keys_;
  ps::LocalCoordinator coordinator_;
  std::vector<std::vector<std::unique_ptr<comm::Transport>>> links_;
  std::atomic<int> batches_{0};
  std::atomic<int> ended_{0};
  const TemporaryFolder folder_;  // holds the meshes' sockets
  std::atomic<int> endpoint_{0};
  std::map<int, std::atomic<bool>> dead_ = [] {
    std::map<int, std::atomic<bool>> all;
    for (int d = 0; d < 8; ++d) all[d] = false;
    return all;
  }();
  std::vector<int> saved_;
  std::mutex mutex_;
};

std::vector<groups::Options> methods() {
  std::vector<groups::Options> all(4);
  all[1].sync_period = 1;
  all[2].method = groups::Method::AdPsgd;
  all[3].method = groups::Method::AdPsgdLockstep;
  return all;
}

void expect_finished(const Case& c, const ShrinkingJob& job) {
  for (int d = 0; d < c.pipelines; ++d) {
    if (c.dies.count(d) > 0) continue;
    ASSERT_EQ(job.finished.count(d), 1U);
    EXPECT_EQ(job.finished.at(d), c.stages);
    // A survivor continues with at least its share.
    if (c.policy.sync_period == 1) {
      EXPECT_GE(job.losses.at(d).size(), static_cast<std::size_t>(c.runs * kUpdates));
    }
  }
  EXPECT_LE(job.lost.size(), c.dies.size());
  for (const ps::Lost& lost : job.lost) {
    EXPECT_EQ(c.dies.count(lost.pipeline), 1U);
    EXPECT_LE(lost.averaged, lost.updates);
    EXPECT_THAT(lost.reason, testing::HasSubstr("was killed"));
  }
}

TEST(Shrink, NobodyDies) {
  for (const groups::Options& policy : methods()) {
    Case c;
    c.policy = policy;
    c.dies = {};
    SCOPED_TRACE(groups::method_name(policy.method));
    ShrinkingJob job(c);
    job.run();
    expect_finished(c, job);
    EXPECT_EQ(job.saved(), (std::vector<int>{c.runs, 0, 0}));
  }
}

TEST(Shrink, GoesOnWhoeverDiesWhenever) {
  std::mt19937 draw(3);
  int trials = 0, in_training = 0;
  for (int trial = 0; trial < 18; ++trial) {
    for (const groups::Options& policy : methods()) {
      Case c;
      c.policy = policy;
      c.pipelines = 2 + trial % 3;
      c.stages = 1 + trial / 3 % 3;
      c.dies = {static_cast<int>(draw() % static_cast<unsigned>(c.pipelines))};
      if (c.pipelines == 4 && trial % 2 == 0) c.dies.insert(static_cast<int>(draw() % 4));
      c.after_batches =
          1 + static_cast<int>(draw() % static_cast<unsigned>(c.pipelines * c.runs * c.updates));
      c.after_ms = static_cast<double>(draw() % 1000) / 1000 * 2;
      SCOPED_TRACE(testing::Message()
                   << "trial " << trial << ", " << groups::method_name(policy.method) << ", P "
                   << policy.sync_period << ", " << c.pipelines << " x " << c.stages << ", after "
                   << c.after_batches << " batches and " << c.after_ms << " ms");
      ShrinkingJob job(c);
      job.run();
      expect_finished(c, job);
      ++trials;
      if (!job.lost.empty()) ++in_training;  // otherwise the job had ended before the death
    }
  }
  std::printf("%d of %d died in training\n", in_training, trials);
  EXPECT_GT(in_training, trials / 2);
}

TEST(Shrink, AllStopSoonAfterOneIsAskedTo) {
  for (const groups::Options& policy : {methods()[0], methods()[2]}) {
    Case c;
    c.policy = policy;
    c.dies = {};
    c.runs = 1;
    c.updates = 1000000;
    c.asks = true;
    ShrinkingJob job(c);
    job.run();
    expect_finished(c, job);
    ASSERT_EQ(job.steps.size(), 1U);
    EXPECT_GE(*job.steps.begin(), 3);
    EXPECT_LT(*job.steps.begin(), 10000);
  }
}

// Returns the bytes that training on `rows` rows needs on one worker.
std::int64_t needed_bytes(std::int64_t rows) {
  JobOptions o;
  o.method = "pipedream";
  o.batch_size = rows;
  return check_job(testing_model::language_model(model()), OptimizerConfig(), o);
}

// Limits the address space, so that a plan which is wrongly accepted fails soon and doesn't exhaust
// the machine's memory.
class AddressSpace {
 public:
  explicit AddressSpace(std::int64_t more) {
    getrlimit(RLIMIT_AS, &before_);
    std::ifstream file("/proc/self/statm");
    rlim_t pages = 0;
    file >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + more;
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpace() { setrlimit(RLIMIT_AS, &before_); }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

 private:
  rlimit before_{};
};

// A single pipeline fits. The pipelines have no links to each other's workers, and must still count
// each other's memory.
TEST(Shrink, CountsTheMemoryOfAllPipelinesOfAHost) {
  const std::int64_t each = (needed_bytes(2000) - needed_bytes(1000)) / 1000;
  Case c;
  c.pipelines = 2;
  c.stages = 1;
  c.dies = {};
  c.refused = true;
  c.rows = machine_bytes() * 7 / 10 / each;
  const AddressSpace guard(std::int64_t{1} << 30);
  ShrinkingJob job(c);
  job.run();
  ASSERT_EQ(job.refusals.size(), 2U);
  EXPECT_EQ(*job.refusals.begin(), *job.refusals.rbegin());
  EXPECT_THAT(*job.refusals.begin(),
              testing::ContainsRegex("[(]2 workers; worker [01] needs most, "));
}

// For an average over pipelines that may die, the plan counts at least a copy of the weights and a
// copy of the whole state.
TEST(Shrink, PlansTheMemoryOfTheConsensus) {
  Case c;
  c.stages = c.runs = 1;
  c.dies = {};
  ShrinkingJob job(c);
  job.run();
  expect_finished(c, job);
  std::int64_t state = 0, weights = 0;
  for (const auto& [name, values] : job.tensors) {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(float));
    state += bytes;
    if (name.back() == '/') weights += bytes;
  }
  EXPECT_GT(weights, 0);
  EXPECT_GE(job.averages, weights + state);
}

TEST(Shrink, AnotherPipelineSavesWhatADyingOneDidNot) {
  Case c;
  c.dies = {0, 1};
  c.dies_saving = true;
  ShrinkingJob job(c);
  job.run();
  expect_finished(c, job);
  EXPECT_EQ(job.saved()[2], c.runs);
  EXPECT_EQ(job.lost.size(), 2U);
}

}  // namespace
}  // namespace hetu
