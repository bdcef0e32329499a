// The verifier's message for a plan that it refuses; used by the tests of pipeline/.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "pipeline/verify/verify.h"

namespace hetu {

/// Returns the message of Code::Plan, or "" for an accepted plan.
inline std::string refusal_of(const Schedule& plan) {
  try {
    verify(plan);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Plan) << e.what();
    return e.what();
  }
  return "";
}

}  // namespace hetu
