// Characters of every kind that a rule of the tokenizer can tell from another.
#pragma once

#include <string>
#include <vector>

namespace k3::test {

[[nodiscard]] const std::vector<std::string>& border_characters();

}  // namespace k3::test
