// Any ids as an assistant's message, dealt to ChatStream and TextStream: what is completed is whole, what
// was shown stays, and the message can be rendered.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "k3/chat_stream.h"

namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();  // libFuzzer reports the input
  }
}

// The 256 bytes, an id each.
std::string vocabulary() {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string lines;
  for (unsigned byte = 0; byte < 256; ++byte) {
    lines += kDigits[byte / 4];
    lines += kDigits[byte % 4 * 16];
    lines += "== " + std::to_string(byte) + "\n";
  }
  return lines;
}

const k3::ChatEncoder& encoder() {
  static const k3::Tokenizer kTokenizer(
      {vocabulary(), "fuzz.model"},
      {R"({"added_tokens_decoder": {"256": "[EOS]", "257": "<|end_of_msg|>", "258": "<|open|>",)"
       R"("259": "<|close|>", "260": "<|sep|>"}, "eos_token": "[EOS]"})",
       "fuzz.json"});
  static const k3::ChatEncoder kEncoder(kTokenizer);
  return kEncoder;
}

struct Shown {
  std::string thinking;
  std::string response;

  k3::ChatSink sink() {
    return [this](k3::ChatChannel channel, std::string_view text) {
      require(!text.empty());
      (channel == k3::ChatChannel::kThinking ? thinking : response) += text;
    };
  }
};

}  // namespace

// The first byte: options. Others are themselves, but for 0xF8 to 0xFF: specials and whole tags.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const k3::Thinking thinking = data[0] % 2 == 0 ? k3::Thinking::kOff : k3::Thinking::kMax;
  const std::vector<std::string> stops = data[0] % 4 < 2
                                             ? std::vector<std::string>()
                                             : std::vector<std::string>{"stop", "\xE4\xBD\xA0"};
  k3::ChatStream stream(encoder(), thinking, stops);
  Shown shown;
  for (std::size_t i = 1; i < size; ++i) {
    constexpr std::uint8_t kFirstSpecial = 0xF8;
    stream.push(data[i] < kFirstSpecial ? data[i] : 256 + (data[i] - kFirstSpecial), shown.sink());
  }
  stream.finish(shown.sink());
  const Shown before = shown;
  for (const std::int32_t id : stream.completion()) {
    stream.push(id, shown.sink());
  }
  require(shown.thinking == before.thinking && shown.response == before.response);
  require(stream.completion().empty());
  require(stream.message().reasoning == shown.thinking);
  require(stream.message().content.front().text == shown.response);
  const std::vector<k3::ChatMessage> messages = {stream.message()};
  require(!encoder().encode(messages, {.thinking = thinking}).empty());
  (void)k3::read_chat_history({.text = k3::write_chat_message(messages.front()), .name = "again"});
  return 0;
}
