// The methods. Each method is a pure function from sizes to a compute-only Schedule. It has one row
// in the table of generate/table.cpp and one generator in generate/.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

struct Costs;
struct Stragglers;

/// Everything that a generator may depend on, named as the options of `hetu schedule`.
/// fields(Sizes&) lists the members that users can set.
struct Sizes {
  int stages = 1;         ///< Workers of one pipeline, P.
  int micro_batches = 1;  ///< Micro-batches per step, M, of all directions together.
  int chunks = 0;         ///< Model stages per worker, V; 0: the method's default.
  int pairs = 1;
  int steps = 1;  ///< Steps of an asynchronous method.
  /// Replicas of each stage, if the stages have their own; empty: 1 each.
  std::vector<int> replicas = {};
  std::string concat = "direct";
  std::string pair_semantics = "split";
  bool runtime_rule = false;
  // Read only by methods that choose by costs:
  const Costs* costs = nullptr;     ///< Costs to choose by; nullptr: the default costs of cost.h.
  const Stragglers* run = nullptr;  ///< Stragglers to simulate; nullptr: no stragglers.
  double memory_limit = 0;          ///< Most activations per worker, in micro-batches; 0: no limit.
  double memory_bytes = 0;      ///< Most bytes per worker, with weights, by the costs; 0: no limit.
  bool with_recompute = false;  ///< True if the caller applies with_recompute() to the plan.
  bool split_backward = false;  ///< True if the caller applies with_split_backward() to it.
};

/// Returns the options for the sizes of a plan, in the order of --help.
Fields fields(Sizes& sizes);

/// Names of options of `hetu schedule` that only some methods take, e.g. "chunks".
using OptionNames = std::vector<const char*>;

/// A row of the table of methods. `stages_rule` and `micros_rule` state the rules in words.
/// `legal_stages` and `legal_micros` decide.
struct Method {
  const char* name;
  std::vector<const char*> aliases;  ///< Other published names of the method.
  const char* doc;                   ///< One sentence with its source.
  OptionNames options;               ///< Options of the method beyond stages and micro-batches.
  const char* stages_rule;           ///< For example "any P >= 1".
  bool (*legal_stages)(const Sizes& sizes);
  const char* micros_rule;  ///< For example "any M >= 1".
  bool (*legal_micros)(const Sizes& sizes);
  /// Default number of model stages per worker, and the only one without the option.
  int chunks = 1;
  const char* chunks_rule = "any V >= 1";
  bool (*legal_chunks)(const Sizes& sizes) = [](const Sizes& s) { return s.chunks >= 1; };
  /// True if the order depends on Sizes::costs, whatever the other sizes are.
  bool by_costs = false;
  Schedule (*generate)(const Sizes& sizes);
};

/// Returns all methods in the order of `--help`.
const std::vector<Method>& methods();

/// Returns the method with this name or alias, or nullptr.
const Method* find_method(std::string_view name);

/// Returns true if the method takes this option, named as in Method::options.
bool takes(const Method& method, std::string_view option);

/// Returns true if at least one method lists the option in Method::options.
bool is_of_some_methods(std::string_view option);

/// Checks that the method takes every given option, because an option that it doesn't take would
/// have no effect. `given` holds names of fields(Sizes&), or of options that apply only to a plan
/// FILE (replicas, version_rule). Throws InvalidArgument with the name of a wrong option.
void refuse_foreign(const Method& method, const std::set<std::string>& given);

/// Returns the sizes with the method's defaults for values that are not set (chunks).
Sizes resolved(const Method& method, const Sizes& sizes);

/// Returns true if the method has a schedule of these sizes, resolved or not.
bool is_legal(const Method& method, const Sizes& sizes);

/// Returns the compute-only schedule of a method. Throws InvalidArgument for an unknown method,
/// with the known names. Throws InvalidArgument for illegal sizes, with the rule and the nearest
/// legal values.
Schedule generate(std::string_view method, const Sizes& sizes);

/// Returns a copy with an R directly before each B or I, except on the last model stage. Throws
/// InvalidArgument if the schedule already has an R.
Schedule with_recompute(const Schedule& schedule);

/// Returns a copy in which each B is split into an I and a W. The I takes the place of the B. The W
/// stands where its worker would otherwise idle before the next instruction, by a simulation under
/// `costs`, or at the end of the row. The W's of a worker keep the order of its B's. A W stands
/// before a forward if the worker would otherwise keep more activations than any worker of `plan`
/// does. Applied to 1F1B, this gives ZB-H1.
/// Source: Qi et al. 2024 (zero bubble).
///
/// Throws InvalidArgument for a plan without a flush or without B's. Also throws InvalidArgument
/// for half micro-batches, a run policy or atomic pairs, and if the costs don't fit the plan.
Schedule with_split_backward(const Schedule& plan, const Costs& costs);

}  // namespace hetu
