// Any bytes as the files of a tokenizer, cut at the first NUL: they are refused with
// Error(kUserFile), or every rank has its bytes and the bytes their rank.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "k3/errors.h"

#include "text/special_tokens.h"
#include "text/vocabulary.h"

namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();  // libFuzzer reports the input
  }
}

void check_vocabulary(std::string_view text) {
  try {
    const k3::text::Vocabulary vocabulary({text, "fuzz.model"});
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
      const auto rank = static_cast<std::int32_t>(i);
      require(vocabulary.rank(vocabulary.bytes(rank)) == rank);
    }
  } catch (const k3::Error& error) {
    require(error.kind() == k3::ErrorKind::kUserFile);
  }
}

void check_specials(std::string_view text) {
  try {
    const auto tokens = k3::text::read_special_tokens({text, "fuzz.json"}, 768, "fuzz.model");
    require(tokens.names.size() == k3::text::kSpecialTokens && !tokens.end_ids.empty());
  } catch (const k3::Error& error) {
    require(error.kind() == k3::ErrorKind::kUserFile);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = text.find('\0');
  check_vocabulary(text.substr(0, cut));
  if (cut != std::string_view::npos) {
    check_specials(text.substr(cut + 1));
  }
  return 0;
}
