// Where K-FAC's work stands in a plan and who does it, and the options that say so: the same for
// the tool and for training. Read by pipeline/fill, pipeline/options and executor/stage.
#pragma once
#include <cstdint>
#include <string>

#include "base/fields.h"

namespace hetu {

/// Where the work stands: directly before a step's all-reduces are waited for, behind all compute
/// of the worker (after), in the bubbles of as many steps as that takes (best), or so that
/// inversions may go into bubbles of the cycle after, before its own work is there (wrap).
enum class FillRule : std::uint8_t { After, Best, Wrap };

/// Who inverts the factors of a stage with several copies: each layer one of them, which gives its
/// inverses to the others (owners), or every copy all of them (all).
enum class InverseMakers : std::uint8_t { Owners, All };

/// "after", "best", "wrap".
const char* fill_rule_name(FillRule rule);
/// The inverse. Throws InvalidArgument naming the known ones.
FillRule parse_fill_rule(const std::string& name);

/// "owners", "all".
const char* inverse_makers_name(InverseMakers makers);
/// The inverse. Throws InvalidArgument naming the known ones.
InverseMakers parse_inverse_makers(const std::string& name);

/// `--fill`. An empty rule stands for a plan without the work.
OptionField fill_field(std::string& rule);
/// `--inverses`.
OptionField inverses_field(std::string& makers);
/// `--curvature-every`.
OptionField every_field(std::int64_t& every);
/// `--replan`.
OptionField replan_field(double& share);

}  // namespace hetu
