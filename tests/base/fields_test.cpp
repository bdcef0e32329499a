// Tests option fields: values set by text or by value, errors and their exact text, and the help
// text.
#include "base/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/words.h"

namespace hetu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Part {
  int who = -1;
  double factor = 0;
};

struct Sample {
  bool fast = false, overlap = true;
  int count = 4;
  std::int64_t limit = 0;
  double share = 0.5;
  std::string how = "direct";
  std::vector<int> copies;
  std::optional<double> time;
  std::vector<Part> parts;
};

Fields fields(Part& p) {
  return {{.name = "who", .value = &p.who, .range = {0, 9}},
          {.name = "factor", .value = &p.factor, .range = {.above = true}}};
}

Fields fields(Sample& s) {
  const RecordAccess parts{[&s](const std::function<void(const Fields&)>& fill) {
    Part made;
    fill(fields(made));
    require(made.factor > 0, "needs a factor");
    s.parts.push_back(made);
  }};
  return {{.name = "fast", .value = &s.fast, .doc = "quickly"},
          {.name = "overlap", .value = &s.overlap, .doc = "beside", .negated = "not beside"},
          {.name = "group_count",
           .value = &s.count,
           .argument = "N",
           .doc = "how many",
           .range = {1, 100}},
          {.name = "limit", .value = &s.limit, .doc = "most", .unit = "bytes", .otherwise = "none"},
          {.name = "share",
           .value = &s.share,
           .doc = "how much",
           .range = {.least = 0, .most = 1, .above = true, .below = true},
           .within = "--constants"},
          {.name = "how", .value = &s.how, .choices = {"direct", "best"}, .to_come = {"magic"}},
          {.name = "copies", .value = &s.copies, .range = {1, 8}},
          {.name = "time", .value = &s.time},
          {.name = "parts", .value = parts}};
}

std::string refusal(const std::function<void()>& tell) {
  try {
    tell();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::InvalidArgument);
    return e.what();
  }
  return "accepted";
}

class FieldsTest : public testing::Test {
 protected:
  std::string read(const char* name, const std::string& text) {
    return refusal([&] { read_field(find_field(all, name), text); });
  }
  std::string set(const char* name, const FieldValue& value) {
    return refusal([&] { set_field(find_field(all, name), value); });
  }
  Sample s;
  std::set<std::string> given;
  Fields all = recorded(fields(s), given);
};

TEST_F(FieldsTest, TextAndValuesComeToTheSame) {
  for (const bool text : {true, false}) {
    s = Sample();
    const auto tell = [&](const char* name, const std::string& word, const FieldValue& value) {
      EXPECT_EQ(text ? read(name, word) : set(name, value), "accepted") << name;
    };
    tell("fast", "", true);
    tell("group_count", "7", std::int64_t{7});
    tell("limit", "2KiB", std::int64_t{2048});
    tell("share", "0.25", 0.25);
    tell("how", "best", std::string("best"));
    tell("copies", "1,2,8", std::vector<std::int64_t>{1, 2, 8});
    tell("time", "3", std::int64_t{3});
    EXPECT_TRUE(s.fast);
    EXPECT_EQ(s.count, 7);
    EXPECT_EQ(s.limit, 2048);
    EXPECT_EQ(s.share, 0.25);
    EXPECT_EQ(s.how, "best");
    EXPECT_THAT(s.copies, ElementsAre(1, 2, 8));
    EXPECT_EQ(s.time, 3.0);
  }
  EXPECT_THAT(given, ElementsAre("copies", "fast", "group_count", "how", "limit", "share", "time"));
}

TEST_F(FieldsTest, TextOfAnotherKindIsRefusedWithWhatIsRight) {
  EXPECT_EQ(read("group_count", "0"), "expected a whole number from 1 to 100, got '0'");
  EXPECT_EQ(read("group_count", "101"), "expected a whole number from 1 to 100, got '101'");
  EXPECT_EQ(read("group_count", "1.5"), "expected a whole number from 1 to 100, got '1.5'");
  EXPECT_EQ(read("share", "0"), "expected a finite number above 0 and < 1, got '0'");
  EXPECT_EQ(read("share", "1"), "expected a finite number above 0 and < 1, got '1'");
  EXPECT_EQ(read("share", "nan"), "expected a finite number >= 0, got 'nan'");
  EXPECT_EQ(read("how", "bset"), "unknown 'bset'; known: direct, best");
  EXPECT_EQ(read("how", "magic"), "'magic' is not supported yet; supported: direct, best");
  EXPECT_EQ(read("copies", "1,9"), "expected a whole number from 1 to 8, got '9'");
  EXPECT_THAT(read("limit", "2TiB"), HasSubstr("'2TiB' is not a size"));
  EXPECT_EQ(given.size(), 0u);
  EXPECT_EQ(s.count, 4);
}

TEST_F(FieldsTest, ValuesOfAnotherKindAreRefusedByName) {
  EXPECT_EQ(set("group_count", std::int64_t{0}), "--group-count must be >= 1 and <= 100, got 0");
  EXPECT_EQ(set("group_count", 1.5), "--group-count must be a whole number, got '1.5'");
  EXPECT_EQ(set("group_count", true), "--group-count must be a whole number, got 'true'");
  EXPECT_EQ(set("group_count", std::int64_t{1} << 40),
            "--group-count must be >= 1 and <= 100, got 1099511627776");
  EXPECT_EQ(set("group_count", std::string("x")),
            "--group-count: expected a whole number from 1 to 100, got 'x'");
  EXPECT_EQ(set("share", 1.0), "share must be above 0 and < 1, got 1");
  EXPECT_EQ(set("time", NAN), "--time must be >= 0, got nan");
  EXPECT_EQ(set("fast", std::int64_t{1}), "--fast must be true or false, got '1'");
  EXPECT_EQ(set("how", std::string("bset")), "--how: unknown 'bset'; known: direct, best");
  EXPECT_EQ(set("copies", std::vector<std::int64_t>{1, 9}),
            "--copies must be >= 1 and <= 8, got 9");
  EXPECT_THAT(set("parts", true), HasSubstr("--parts must be records"));
  EXPECT_EQ(given.size(), 0u);
  // -1 marks a default that is chosen later. Setting the current value again is accepted.
  s.share = -1;
  EXPECT_EQ(set("share", -1.0), "accepted");
}

TEST_F(FieldsTest, UnknownNamesAreRefusedWithTheClosest) {
  EXPECT_EQ(refusal([&] { find_field(all, "group_cuont"); }),
            "unknown option --group-cuont; did you mean '--group-count'?; --help lists them");
  EXPECT_EQ(refusal([&] { read_key_values(all, "haw=1"); }),
            "unknown 'haw'; known: fast, overlap, group_count, limit, share, how, copies, time, "
            "parts");
}

TEST_F(FieldsTest, KeysStandInOneText) {
  EXPECT_EQ(refusal([&] { read_flag(all, "--constants", " share = 0.75 "); }), "accepted");
  EXPECT_EQ(s.share, 0.75);
  EXPECT_EQ(refusal([&] { read_flag(all, "--constants", "share=2"); }),
            "--constants: share: expected a finite number above 0 and < 1, got '2'");
  EXPECT_EQ(refusal([&] { read_flag(all, "--constants", "how=best"); }),
            "--constants: unknown 'how'; known: share");
  EXPECT_EQ(refusal([&] { read_flag(all, "--constants", "share=0.5,share=0.6"); }),
            "--constants: 'share' is given twice; give it once");
  EXPECT_EQ(refusal([&] { read_flag(all, "--constants", "share"); }),
            "--constants: expected KEY=VALUE, got 'share'");
  EXPECT_EQ(read("parts", "who=3,factor=2"), "accepted");
  EXPECT_EQ(read("parts", "who=3"), "needs a factor");
  ASSERT_EQ(s.parts.size(), 1u);
  EXPECT_EQ(s.parts[0].who, 3);
}

TEST_F(FieldsTest, WhatStandsInAStructIsChecked) {
  EXPECT_NO_THROW(check_fields(all));
  s.count = 0;
  EXPECT_EQ(refusal([&] { check_fields(all); }), "--group-count must be >= 1 and <= 100, got 0");
  s.count = 1;
  s.how = "halvin";
  EXPECT_EQ(refusal([&] { check_fields(all); }), "unknown how 'halvin'; known: direct, best");
  s.how = "best";
  s.copies = {1, 0};
  EXPECT_EQ(refusal([&] { check_fields(all); }), "--copies must be >= 1 and <= 8, got 0");
}

TEST_F(FieldsTest, HelpSaysWhatHoldsOtherwise) {
  EXPECT_EQ(help_of(find_field(all, "group_count")), "how many (default 4)");
  EXPECT_EQ(help_of(find_field(all, "limit")), "most (default none)");
  EXPECT_EQ(help_of(find_field(all, "fast")), "quickly");
  EXPECT_EQ(flag_of(find_field(all, "group_count")), "--group-count");
  const Fields some = without(all, {"parts", "time", "copies", "how", "share", "limit"});
  EXPECT_EQ(some.size(), 3u);
  EXPECT_EQ(only(all, {"how", "fast"})[0].name, "how");
}

TEST(Words, SizesHaveUnits) {
  EXPECT_EQ(to_bytes("1.5KiB"), 1536.0);
  EXPECT_EQ(to_bytes("2 MiB"), 2097152.0);
  EXPECT_EQ(to_bytes("12"), std::nullopt);
  EXPECT_THROW(to_bytes("GiB"), Error);
}

}  // namespace
}  // namespace hetu
