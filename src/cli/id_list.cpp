#include "cli/id_list.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "k3/errors.h"

namespace k3::cli {
namespace {

[[noreturn]] void refuse(const std::string& what, std::size_t index, std::string_view entry) {
  throw Error(ErrorKind::kUsage, {.what = what,
                                  .where = "--ids, entry " + std::to_string(index + 1),
                                  .expected = "digits separated by single commas",
                                  .found = "\"" + std::string(entry) + "\""});
}

std::int32_t parse_id(std::string_view entry, std::size_t index) {
  if (entry.empty()) {
    refuse("an id is missing", index, entry);
  }
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!std::ranges::all_of(entry, is_digit)) {
    refuse("not a token id", index, entry);
  }
  std::int32_t id = 0;
  const auto result = std::from_chars(entry.data(), entry.data() + entry.size(), id);
  if (result.ec != std::errc()) {
    throw Error(ErrorKind::kUsage, {.what = "token id out of range",
                                    .where = "--ids, entry " + std::to_string(index + 1),
                                    .expected = "an id below the vocabulary size",
                                    .found = std::string(entry)});
  }
  return id;
}

}  // namespace

std::vector<std::int32_t> parse_ids(std::string_view text) {
  std::vector<std::int32_t> ids;
  while (true) {
    const std::size_t comma = text.find(',');
    ids.push_back(parse_id(text.substr(0, comma), ids.size()));
    if (comma == std::string_view::npos) {
      return ids;
    }
    text.remove_prefix(comma + 1);
  }
}

std::string join_ids(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    text.append(text.empty() ? "" : ",").append(std::to_string(id));
  }
  return text;
}

void check_ids(const std::vector<std::int32_t>& ids,
               std::size_t vocab_size,
               const std::string& flag) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<std::size_t>(ids[i]) >= vocab_size) {
      throw Error(ErrorKind::kUsage, {.what = "token id out of range",
                                      .where = flag + ", entry " + std::to_string(i + 1),
                                      .expected = "0 to " + std::to_string(vocab_size - 1) +
                                                  " (the vocabulary of the config)",
                                      .found = std::to_string(ids[i])});
    }
  }
}

}  // namespace k3::cli
