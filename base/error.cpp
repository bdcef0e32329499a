#include "base/error.h"

namespace hetu {
namespace {

struct CodeRow {
  const char* name;
  int status;
};

const CodeRow& row(Code code) {
  static const CodeRow kRows[] = {{"InvalidArgument", 2}, {"Config", 2},   {"Plan", 1},
                                  {"Unsupported", 3},     {"Io", 4},       {"Comm", 5},
                                  {"Timeout", 6},         {"Internal", 70}};
  return kRows[static_cast<int>(code)];
}

}  // namespace

const char* code_name(Code code) { return row(code).name; }

int exit_status(Code code) { return row(code).status; }

void assertion_failed(const char* expression, const char* file, int line) {
  fail(Code::Internal, "{}:{}: assertion failed: {}; this is a bug in Hetu", file, line,
       expression);
}

}  // namespace hetu
