// One worker without weights under heturun, for tests/python/launch/coordinator_test.py:
// `group_ranks STAGES UPDATES [--shrink] [--rounds N] [--log FILE] [--rest MICROSECONDS]`. It asks
// the coordinator for a group after every update. It ends as a training does: with status 0, or
// with a one-line error and its status.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include "base/error.h"
#include "config/env.h"
#include "ps/coordinator/group_client.h"

namespace hetu {
namespace {

void run(int argc, char** argv) {
  require(argc >= 3, "group_ranks STAGES UPDATES [options]");
  const int stages = std::atoi(argv[1]);
  const std::int64_t updates = std::atoll(argv[2]);
  int rounds = 1;
  int rest_us = 300;
  ps::ClientOptions options;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--shrink") options.on_failure_shrink = true;
    if (word == "--rounds") rounds = std::atoi(argv[++i]);
    if (word == "--log") options.group_log = argv[++i];
    if (word == "--rest") rest_us = std::atoi(argv[++i]);
  }
  options.worker = env().worker;
  options.timeout_s = env().timeout_s;
  options.policy.stages = stages;
  options.policy.pipelines = env().workers / stages;
  options.policy.sync_period = 5;
  options.pipeline = options.worker / stages;
  options.stage = options.worker % stages;
  std::mt19937 draw(static_cast<unsigned>(options.worker));
  std::printf("up %d %s\n", getpid(), env().job.c_str());
  std::fflush(stdout);
  for (int round = 0; round < rounds; ++round) {
    const auto client = ps::connect_coordinator(env().coordinator, options);
    std::int64_t update = 0;
    std::size_t lost = 0;
    client->begin_run({0, updates});
    for (std::int64_t stop = groups::kRunsOn; update < stop;) {
      std::this_thread::sleep_for(std::chrono::microseconds(rest_us + draw() % 200));
      client->request(++update);
      stop = client->wait([] { return std::string("a test"); }).stop_after;
      lost = client->lost_pipelines().size();
    }
    std::printf("done pipeline %d stage %d updates %ld lost %zu\n", options.pipeline, options.stage,
                static_cast<long>(update), lost);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace hetu

int main(int argc, char** argv) {
  try {
    hetu::run(argc, argv);
  } catch (const hetu::Error& error) {
    std::fprintf(stderr, "group_ranks: %s\n", error.what());
    std::fflush(stderr);
    std::_Exit(hetu::exit_status(error.code()));
  }
}
