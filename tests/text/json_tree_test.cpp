// JSON as the chat format wants it written.

#include "text/json_tree.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace k3::text {
namespace {

std::string again(const std::string& text, Keys keys = Keys::kAsTheyCome) {
  JsonTree value;
  JsonFault fault;
  return parse_json(text, Duplicates::kLastWins, value, fault) ? write_json(value, keys)
                                                               : "fault: " + fault.what;
}

// What Python's json.dumps(json.loads(text)) gives, with compact separators and non-ASCII raw.
TEST(JsonTree, WritesWhatPythonWrites) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {" [ 1 , -0, 1.50, 1E3, 1e15, 1e16, 1e22, 0.0001, 0.00001, -0.0 ] ",
       "[1,0,1.5,1000.0,1000000000000000.0,1e+16,1e+22,0.0001,1e-05,-0.0]"},
      {"[123456789012345678901234567890, -9223372036854775809]",
       "[123456789012345678901234567890,-9223372036854775809]"},
      {"[0.1, 5e-324, 1.7976931348623157e308, 123456789.125]",
       "[0.1,5e-324,1.7976931348623157e+308,123456789.125]"},
      {R"(["\u00e9\u4f60\ud83d\ude00 \/ \" \\ \b\f\n\r\t\u0001\u007f"])",
       "[\"é你😀 / \\\" \\\\ \\b\\f\\n\\r\\t\\u0001\x7F\"]"},
      {R"({"b": {}, "a": [], "b": 2, "": null, "c": [true, false]})",
       R"({"b":2,"a":[],"":null,"c":[true,false]})"},
      {"\"x\"", "\"x\""},
  };
  for (const auto& [text, written] : cases) {
    EXPECT_EQ(again(text), written);
  }
}

TEST(JsonTree, SortsKeysByCodePointsAtEveryDepth) {
  EXPECT_EQ(
      again(R"({"é":1,"z":{"b":1,"B":2},"Z":[{"y":1,"x":2}],"😀":3,"\uffee":4})", Keys::kSorted),
      "{\"Z\":[{\"x\":2,\"y\":1}],\"z\":{\"B\":2,\"b\":1},\"é\":1,\"\uFFEE\":4,\"😀\":3}");
}

TEST(JsonTree, RefusesWhatIsNotJson) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\"}", "nul", "1 2", "01", "NaN",
                           "\"\\ud800\"", "\"\xFF\"", "1e999", "'a'", "[1]]"}) {
    EXPECT_TRUE(again(text).starts_with("fault")) << text;
  }
  JsonTree value;
  JsonFault fault;
  EXPECT_FALSE(parse_json(R"({"a":1,"a":2})", Duplicates::kRefused, value, fault));
  EXPECT_NE(fault.what.find("\"a\" twice"), std::string::npos);
}

TEST(JsonTree, NestingHasALimit) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(again(nested(kMaxJsonDepth)), nested(kMaxJsonDepth));
  EXPECT_TRUE(again(nested(kMaxJsonDepth + 1)).starts_with("fault"));
  EXPECT_TRUE(again(std::string(1000000, '[')).starts_with("fault"));
}

TEST(JsonTree, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  EXPECT_EQ(json_string("a\xFF\xE4\xBDz"), "\"a\uFFFD\uFFFD\uFFFDz\"");
}

}  // namespace
}  // namespace k3::text
