// The workers that a plan may use, and the ways to assign them to the places of a plan.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/cost/cost.h"

namespace hetu {

/// The workers that a plan may use. Lists hold one entry per worker.
struct Machines {
  std::vector<double> speed;         ///< 1: the speed at which the costs were measured
  std::vector<double> memory_bytes;  ///< limit per worker, 0: none; empty: no limits
  LinkCost link;                     ///< of every pair that `pairs` doesn't name
  std::vector<LinkCost> pairs;       ///< from and to are workers
  std::vector<std::string> hosts;    ///< names, for the report; empty: one host

  int workers() const { return static_cast<int>(speed.size()); }
};

/// An assignment: the worker at each place of a plan. Place pipeline * P + w is worker w of a
/// pipeline of P workers.
using Assignment = std::vector<int>;

/// Checks the numbers. Throws InvalidArgument.
void check_machines(const Machines& machines);

/// Returns a class for each worker. Workers of one class have the same speed, memory and links, so
/// that exchanging them changes no plan. Classes are numbered in the order of their first workers.
std::vector<int> classes_of(const Machines& machines);

/// Returns the link from one worker to another.
LinkCost link_between(const Machines& machines, int from, int to);

/// Returns the slowest link in either direction between any two of these workers, by the time of a
/// message of `bytes` bytes. Returns a link without delay for fewer than two.
LinkCost slowest_link(const Machines& machines, const std::vector<int>& workers, double bytes);

/// Assignments, and whether they are all that differ.
struct Assignments {
  std::vector<Assignment> list;
  bool all = true;
};

/// Returns the assignments of `pipelines` pipelines of `places` workers each. Assignments that
/// differ only by workers of one class, or by the order of the pipelines, count as the same. If
/// there are more than `most`, returns some of them: in the given order, and with workers of
/// similar speed at the same place of all pipelines, fastest and slowest first.
Assignments assignments_of(const Machines& machines, int pipelines, int places, std::int64_t most);

/// Returns the costs with the speed, memory limits and links of an assignment.
Costs placed(Costs costs, const Machines& machines, const Assignment& assignment);

/// Returns an upper bound of the work per time unit that a pipeline can do if each of its `places`
/// places is as slow as the slowest of the `pipelines` workers there: the sum of the places'
/// speeds, at best.
double most_speed(const Machines& machines, int pipelines, int places);

}  // namespace hetu
