// Plans in your own program, with an installed Hetu (docs/examples/CMakeLists.txt): 1F1B is
// generated, verified and simulated.
#include <cstdio>

#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"
#include "pipeline/verify/verify.h"

int main() {
  const hetu::Schedule plan =
      hetu::lower(hetu::generate("1f1b", {.stages = 4, .micro_batches = 8}));
  const hetu::VerifyReport proof =
      hetu::verify(plan);  // throws hetu::Error, which says what is wrong and where
  const hetu::Simulation run = hetu::simulate(plan, hetu::Costs{});
  std::printf("peak %g micro-batches, makespan %g, bubble %.4f\n", proof.peak_activations[0],
              run.makespan, run.bubble_fraction);
}
