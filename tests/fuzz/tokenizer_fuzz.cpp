// Any bytes as text: what the tokenizer makes of them decodes to the same bytes, without a special
// id, and the pieces are those of the text.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "k3/tokenizer.h"

#include "text/splitter.h"

namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();  // libFuzzer reports the input
  }
}

// All bytes, then pairs and quadruples of the same byte: every text has something to merge.
std::string vocabulary() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string lines;
  int rank = 0;
  for (const int times : {1, 2, 4}) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::string bits;
      for (int i = 0; i < times; ++i) {
        for (unsigned bit = 128; bit > 0; bit /= 2) {
          bits += (byte & bit) != 0 ? '1' : '0';
        }
      }
      bits.resize((bits.size() + 5) / 6 * 6, '0');
      std::string word;
      for (std::size_t i = 0; i < bits.size(); i += 6) {
        word += kDigits[std::stoul(bits.substr(i, 6), nullptr, 2)];
      }
      word.resize((word.size() + 3) / 4 * 4, '=');
      lines += word + " " + std::to_string(rank++) + "\n";
    }
  }
  return lines;
}

const k3::Tokenizer& tokenizer() {
  static const k3::Tokenizer kTokenizer(
      {vocabulary(), "fuzz.model"},
      {R"({"added_tokens_decoder": {"768": "[EOS]", "769": "<|end_of_msg|>"}, "eos_token": "[EOS]"})",
       "fuzz.json"});
  return kTokenizer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto ids = tokenizer().encode(text);
  require(tokenizer().decode(ids) == text);
  for (const std::int32_t id : ids) {
    require(!tokenizer().is_special(id));
  }
  std::size_t bytes = 0;
  for (k3::text::Splitter splitter(text); !splitter.done();) {
    const std::string_view piece = splitter.next();
    require(!piece.empty() && piece.data() == text.data() + bytes);
    bytes += piece.size();
  }
  require(bytes == size);
  return 0;
}
