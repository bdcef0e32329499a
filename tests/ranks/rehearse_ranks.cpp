// One worker of a rehearsal: `mpirun -np P rehearse_ranks METHOD M FORWARD_MS PAYLOAD REPEAT
// [PIPELINES [ALLREDUCE]]`. Worker 0 prints the report.
#include <fmt/format.h>

#include <string>

#include "executor/comm/mpi.h"
#include "executor/rehearse.h"
#include "graph/base/error.h"
#include "pipeline/generate.h"
#include "pipeline/lower.h"

namespace hetu {
namespace {

int start(int argc, char** argv) {
  require(argc >= 6, "METHOD M FORWARD_MS PAYLOAD REPEAT [PIPELINES [ALLREDUCE]]");
  const int pipelines = argc > 6 ? std::stoi(argv[6]) : 1;
  const auto transport = comm::connect_mpi();
  try {
    Sizes sizes;
    sizes.stages = transport->workers() / pipelines;
    sizes.micro_batches = std::stoi(argv[2]);
    Lowering how;
    how.pipelines = pipelines;
    const Schedule plan = lower(generate(argv[1], sizes), how);
    Costs costs;
    costs.allreduce = argc > 7 ? std::stod(argv[7]) : 0;
    Pace pace;
    pace.unit_ns = std::stod(argv[3]) * 1e6;
    pace.payload_bytes = std::stoul(argv[4]);
    const Rehearsal result = rehearse(plan, costs, pace, std::stoi(argv[5]), *transport);
    if (transport->worker() == 0) fmt::print("{}", to_text(result));
  } catch (const Error& e) {
    transport->abort(exit_status(e.code()), e.what());
  }
  return 0;
}

}  // namespace
}  // namespace hetu

int main(int argc, char** argv) {
  try {
    return hetu::start(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
