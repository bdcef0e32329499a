// The methods: each is a pure function from sizes to a compute-only Schedule. A method is one row
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

/// Everything a generator may depend on, named as the options of `hetu schedule`; what a user may
/// tell of it stands in fields(Sizes&).
struct Sizes {
  int stages = 1;         ///< workers of one pipeline, P
  int micro_batches = 1;  ///< per step, over all directions, M
  int chunks = 0;         ///< model stages per worker, V; 0: as many as the method has unless told
  int pairs = 1;
  int steps = 1;                   ///< of an asynchronous method
  std::vector<int> replicas = {};  ///< of each stage, where they have their own; empty: 1 each
  std::string concat = "direct";
  std::string pair_semantics = "split";
  bool runtime_rule = false;
  // What only methods that choose by costs read:
  const Costs* costs = nullptr;     ///< none: the default costs of cost.h
  const Stragglers* run = nullptr;  ///< injected; none: none
  double memory_limit = 0;          ///< most activations per worker, in micro-batches; 0: none
  double memory_bytes = 0;          ///< the same in bytes, weights included, by the costs; 0: none
  bool with_recompute = false;      ///< the plan will be recomputed, see with_recompute
  bool split_backward = false;      ///< and its backwards split, see with_split_backward
};

/// What may be told of the sizes of a plan, in the order of --help.
Fields fields(Sizes& sizes);

/// An option of `hetu schedule` that only some methods take, e.g. "chunks".
using OptionNames = std::vector<const char*>;

/// One method. `legal_stages` and `legal_micros` name the rule; the predicates decide.
struct Method {
  const char* name;
  std::vector<const char*> aliases;  ///< other published names of the same method
  const char* doc;                   ///< one sentence with its source
  OptionNames options;               ///< beyond stages and micro-batches
  const char* stages_rule;           ///< e.g. "any P >= 1"
  bool (*legal_stages)(const Sizes& sizes);
  const char* micros_rule;  ///< e.g. "any M >= 1"
  bool (*legal_micros)(const Sizes& sizes);
  int chunks = 1;  ///< model stages per worker unless told; the only number without the option
  const char* chunks_rule = "any V >= 1";
  bool (*legal_chunks)(const Sizes& sizes) = [](const Sizes& s) { return s.chunks >= 1; };
  bool by_costs = false;  ///< the order depends on Sizes::costs whatever the other sizes
  Schedule (*generate)(const Sizes& sizes);
};

/// All methods there are, in the order of `--help`.
const std::vector<Method>& methods();

/// The method of this name or alias, or nullptr.
const Method* find_method(std::string_view name);

/// True if the method takes this option, named as in Method::options.
bool takes(const Method& method, std::string_view option);

/// True of an option that some method takes and another does not.
bool is_of_some_methods(std::string_view option);

/// Refuses, by name, what is told and the method does not take: it would be ignored silently.
/// `given` has names of fields(Sizes&), or of what only a FILE is told (replicas, version_rule).
/// Throws InvalidArgument.
void refuse_foreign(const Method& method, const std::set<std::string>& given);

/// The sizes with the method's own values where they leave them to it (chunks).
Sizes resolved(const Method& method, const Sizes& sizes);

/// True if the method has a schedule of these sizes, resolved or not.
bool is_legal(const Method& method, const Sizes& sizes);

/// The compute-only schedule of a method. Throws InvalidArgument: an unknown method (naming the
/// known ones), or sizes the method cannot have (naming its rule and the nearest legal values).
Schedule generate(std::string_view method, const Sizes& sizes);

/// A copy with an R directly before each B or I, except on the last model stage. Throws
/// InvalidArgument if the schedule has an R already.
Schedule with_recompute(const Schedule& schedule);

/// A copy with an I in place of each B, whose W, by simulation under `costs`, stands where its
/// worker would idle before what comes next, or at the end; before a forward it stands where that
/// would keep more activations than the worker of `plan` that keeps most. W's of a worker stay in
/// the order of its B's. Source: Qi et al. 2024 (zero bubble), whose ZB-H1 it makes of 1F1B.
/// Throws InvalidArgument for a plan without a flush, without B's, with half micro-batches or
/// atomic pairs, and if the costs do not fit it.
Schedule with_split_backward(const Schedule& plan, const Costs& costs);

}  // namespace hetu
