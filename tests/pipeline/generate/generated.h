// Plans, unit costs and simulation figures for the tests of generators.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "pipeline/generate/generate.h"
#include "pipeline/simulate/simulate.h"

namespace hetu::testing_plans {

/// Returns costs with times per worker and micro-batch, and latency c per hop.
inline Costs costs(double f, double b, double w, double c = 0) {
  Costs out;
  out.stages = {{.forward = f, .input_grad = b, .weight_grad = w}};
  out.link.latency = c;
  return out;
}

/// makespan - ideal and span - ideal.
struct Bubbles {
  double makespan = 0;
  double span = 0;
  double peak = 0;  ///< the largest peak_activations
};

inline Bubbles bubbles(const Schedule& plan, const Costs& c) {
  const Simulation r = simulate(plan, c);
  Bubbles out{r.makespan - r.ideal, r.span - r.ideal};
  for (const WorkerTiming& w : r.workers) out.peak = std::max(out.peak, w.peak_activations);
  return out;
}

/// Returns F, B, W triples: equal times, and every order of sizes that a formula could depend on.
inline std::vector<Costs> mixed_costs() {
  return {costs(1, 1, 1),   costs(1, 2, 0.5), costs(2, 1.5, 1), costs(1, 1.25, 3),
          costs(3, 1, 2.5), costs(1, 3, 2),   costs(2, 0.5, 4), costs(4, 4, 1)};
}

inline std::vector<std::string> row_of(const Schedule& s, int worker) {
  std::vector<std::string> out;
  for (const Instr& i : unroll(s.workers[worker])) out.push_back(to_string(i));
  return out;
}

inline double total(const Costs& c) {
  const StageCost& s = c.stages[0];
  return s.forward + s.input_grad + s.weight_grad;
}

// Calls check(plan) for every legal plan of the methods over a wide grid of sizes.
template <class Check>
int over_grid(const std::vector<const char*>& names, Check&& check) {
  int plans = 0;
  for (const char* method : names) {
    const Method& m = *find_method(method);
    for (const int p : {1, 2, 3, 4, 5, 7, 8, 16}) {
      for (int micros = 1; micros <= 3 * p + 2; micros += micros < 6 ? 1 : 5) {
        for (const int chunks : {1, 2, 3, 4}) {
          const Sizes sizes{.stages = p, .micro_batches = micros, .chunks = chunks};
          if (!is_legal(m, sizes)) continue;
          check(generate(method, sizes));
          ++plans;
        }
      }
    }
  }
  return plans;
}

inline std::string name(const Schedule& s) {
  return s.method + " P " + std::to_string(s.stages) + " M " + std::to_string(s.micro_batches) +
         " V " + std::to_string(s.chunks);
}

}  // namespace hetu::testing_plans
