// The reasons behind a plan: where each worker's time and memory go, what the links carry, and what
// other machines would bring. `hetu plan --explain` prints them, and `-o PLAN.html` draws them.
#pragma once
#include <string>
#include <vector>

#include "pipeline/planner/planner.h"
#include "pipeline/simulate/simulation.h"

namespace hetu {

/// The use of a worker during a step, in the costs' unit of time. The parts add up to the step.
struct PlaceTime {
  double forward = 0, backward = 0, recompute = 0, update = 0;
  double sums = 0;   ///< takes part in sums of gradients, and computes nothing
  double fill = 0;   ///< waits for its first input
  double waits = 0;  ///< waits for inputs between its computations
  double drain = 0;  ///< waits for the end of the step after its last computation
};

/// The messages of a step from one worker to another.
struct LinkUse {
  int from = 0, to = 0;  ///< workers of the machines
  int messages = 0;
  double bytes = 0;
  double time = 0;  ///< of all messages, one after the other
};

/// A change of the machines, and the best plan that was found for it.
struct WhatIf {
  std::string change;
  double step_time = 0;  ///< 0: no plan fits
  bool proved = false;   ///< no plan is faster with this change
  std::string plan;      ///< to_text of its configuration; "" if no plan fits
};

/// The explanation of a plan.
struct Explanation {
  Simulation simulation;          ///< of the plan, with events
  std::vector<PlaceTime> places;  ///< in the order of PlanChoice::assignment
  std::vector<LinkUse> links;     ///< those that carry messages, the longest time first
  std::vector<WhatIf> what_ifs;
};

/// Explains the plan of an answer, which must have one. Each change of the machines takes another
/// search, each with a share of the request's budget. Throws as find_plan().
Explanation explain(const PlanAnswer& answer, const PlanRequest& request, const CostsOfSize& costs);

/// Returns the explanation as text, below the text of the answer.
std::string to_text(const Explanation& explanation, const PlanAnswer& answer);

/// Returns the answer as one JSON object, with the key `explanation`.
std::string to_json(const Explanation& explanation, const PlanAnswer& answer,
                    const PlanRequest& request);

/// Returns an HTML page of the answer and its explanation, without references to other files: the
/// stages on the machines, times and memory of each worker, links, changes, and the timeline of a
/// step. The same input gives the same bytes.
std::string to_html(const Explanation& explanation, const PlanAnswer& answer,
                    const PlanRequest& request);

}  // namespace hetu
