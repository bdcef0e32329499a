// Where K-FAC's work stands in a plan, which copies do it, and the options for both. The tool and
// training share these options. Read by pipeline/fill, pipeline/options and executor/stage.
#pragma once
#include <cstdint>
#include <string>

#include "base/fields.h"

namespace hetu {

/// Position of K-FAC's work in the rows.
/// - After: directly before the worker waits for a step's all-reduces, after all its compute.
/// - Best: in the bubbles of as many steps as the work needs.
/// - Wrap: as Best, but inversions may also go into bubbles of the next cycle, before that cycle's
///   own work on the same factors.
enum class FillRule : std::uint8_t { After, Best, Wrap };

/// Copies that invert the factors of a stage with several copies.
/// - Owners: one copy inverts each layer and gives its inverses to the other copies.
/// - All: every copy inverts all layers.
enum class InverseMakers : std::uint8_t { Owners, All };

/// Returns "after", "best" or "wrap".
const char* fill_rule_name(FillRule rule);
/// Parses a name of fill_rule_name(). Throws InvalidArgument with the known names.
FillRule parse_fill_rule(const std::string& name);

/// Returns "owners" or "all".
const char* inverse_makers_name(InverseMakers makers);
/// Parses a name of inverse_makers_name(). Throws InvalidArgument with the known names.
InverseMakers parse_inverse_makers(const std::string& name);

/// Returns the option `--fill`. An empty rule stands for a plan without K-FAC work.
OptionField fill_field(std::string& rule);
/// Returns the option `--inverses`.
OptionField inverses_field(std::string& makers);
/// Returns the option `--curvature-every`.
OptionField every_field(std::int64_t& every);
/// Returns the option `--replan`.
OptionField replan_field(double& share);

}  // namespace hetu
